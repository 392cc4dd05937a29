"""Iterations one after another, and when that ends."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlm_core.records import Outcome


@dataclass(frozen=True)
class SeriesLimits:
    """What ends a series, whichever comes first."""

    iterations: int = 0
    """How many; 0 is no limit."""
    stalled_after: int = 0
    """Candidates rejected in a row; 0 is no limit."""
    hours: float | None = None
    """No iteration is begun that would end later, were it to take as long as the longest before it."""


@dataclass
class Series:
    """The iterations of one run of `improve`."""

    limits: SeriesLimits
    outcomes: list[Outcome] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)
    _longest_s: float = 0.0

    def add(self, outcome: Outcome, seconds: float) -> None:
        """An iteration ended so, after so long."""
        self.outcomes.append(outcome)
        self._longest_s = max(self._longest_s, seconds)

    @property
    def left_s(self) -> float | None:
        """Seconds until the hours are over; None without such a limit."""
        if self.limits.hours is None:
            return None
        return max(0.0, self.limits.hours * 3_600 - (time.monotonic() - self._started))

    @property
    def rejected_in_a_row(self) -> int:
        """At the end."""
        return next(
            (n for n, outcome in enumerate(reversed(self.outcomes)) if outcome != "rejected"), len(self.outcomes)
        )

    @property
    def stalled(self) -> bool:
        return bool(self.limits.stalled_after) and self.rejected_in_a_row >= self.limits.stalled_after

    def over(self, pause_s: float = 0.0) -> str | None:
        """Why no further iteration is begun, or None when one is, `pause_s` from now."""
        return next(self._reasons(pause_s), None)

    def _reasons(self, pause_s: float) -> Iterator[str]:
        limits, count = self.limits, len(self.outcomes)
        if limits.iterations and count >= limits.iterations:
            yield f"all {count} iterations are done" if count > 1 else "its one iteration is done"
        if self.stalled:
            yield f"stalled: {self.rejected_in_a_row} candidates in a row were rejected"
        if (left_s := self.left_s) is not None and count and left_s - pause_s < self._longest_s:
            yield (
                f"{max(0.0, left_s - pause_s) / 60:.0f} minutes are left of {limits.hours:g} hours, "
                f"and an iteration takes {self._longest_s / 60:.0f}"
            )
