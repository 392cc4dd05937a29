"""How far a stage is, over all its parts, in words."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlm_core.progress import Progress

_TELLING = 0.05
"""Share of a stage that must be done before it tells how long the others take: a first answer may have waited long."""

TITLES = {
    "generate": "generate (proposals)",
    "mutate": "mutate (variations)",
    "majority": "filter (answers for a majority)",
    "filter": "filter (proposals)",
    "rollout": "rollout (answers)",
    "verify": "verify (answers)",
    "train": "train (steps)",
    "evaluate": "evaluate (answers)",
    "evaluate_verify": "evaluate (judged)",
}


@dataclass
class StageProgress:
    """What is known of one stage."""

    name: str
    started: float = field(default_factory=time.monotonic)
    done: int = 0
    total: int = 0
    _figures: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _parts: dict[str, Progress] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        """What a part has reported."""
        if self.figure("tokens") == 0 and progress.figures.get("tokens"):
            self.started = time.monotonic() - progress.figures.get("seconds", 0.0)
        if before := self._parts.get(progress.part):
            self._count(before, -1)
        self._count(progress, 1)
        self._parts[progress.part] = progress

    def _count(self, progress: Progress, sign: int) -> None:
        """Sums are kept and not made anew: a stage has thousands of parts, and each reports many times."""
        self.done += sign * progress.done
        self.total += sign * progress.total
        for name, value in progress.figures.items():
            self._figures[name] += sign * value

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    def figure(self, name: str) -> float:
        return self._figures.get(name, 0.0)

    def details(self) -> str:
        """Tokens per second, pass rate and estimated time left, those of them that the stage has."""
        words = []
        elapsed = time.monotonic() - self.started
        if tokens := self.figure("tokens"):
            seconds = self.figure("seconds") or elapsed
            words.append(f"{tokens / max(seconds, 1e-9):.0f} tokens/s")
        if self.name in ("verify", "evaluate_verify") and self.done:
            words.append(f"{self.figure('passed') / self.done:.0%} passed")
        found = int(self.figure("found"))
        done_now, left = self.done - found, self.total - self.done
        if left and done_now > 0 and done_now >= _TELLING * (done_now + left):
            words.append(f"about {elapsed / done_now * left:.0f} s left")
        if found:
            words.append(f"{found} were finished before")
        return ", ".join(words)

    def line(self) -> str:
        return f"{self.title}: {self.done} of {self.total}  {self.details()}".rstrip()


class StageBook:
    """The stages that a listener has heard of. Reports come from several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by who reads a stage outside the block of `add`."""
        self._stages: dict[str, StageProgress] = {}
        self._told: dict[str, float] = {}

    @contextmanager
    def add(self, progress: Progress) -> Iterator[StageProgress]:
        """The stage with what was reported of it; nobody else changes it within the block."""
        with self.lock:
            if progress.stage not in self._stages:
                self._stages[progress.stage] = StageProgress(progress.stage)
                self._told[progress.stage] = time.monotonic()
            stage = self._stages[progress.stage]
            stage.add(progress)
            yield stage

    def due(self, stage: StageProgress, every_s: float) -> bool:
        """Whether to write a line about the stage: at most one in `every_s`, and one when it is done."""
        now = time.monotonic()
        if stage.done < stage.total and now - self._told[stage.name] < every_s:
            return False
        self._told[stage.name] = now
        return True
