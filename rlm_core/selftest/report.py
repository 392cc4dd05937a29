"""What a self-test found."""

from rlm_core.problems import Mode
from rlm_core.records import Record
from rlm_core.selftest.answers import Must


class Tried(Record):
    """One answer of the set and what became of it."""

    name: str
    mode: Mode
    tries: str
    must: Must
    came: str
    """What the verdict said, for people."""
    why_not: tuple[str, ...] = ()
    """What shows that the sandbox did not hold against it; empty when it did."""
    latency_s: float

    @property
    def held(self) -> bool:
        """Whether what must come of it came, and nothing else was touched."""
        return not self.why_not


class SelfTest(Record):
    """What became of every answer in one sandbox."""

    sandbox: str
    """As in verdicts: the layers that hold the code."""
    tried: tuple[Tried, ...]
    not_looked_at: tuple[str, ...] = ()
    """What could not be tried or looked at on this machine, each with the reason."""
    duration_s: float

    @property
    def holds(self) -> bool:
        """Whether it held against every answer."""
        return all(tried.held for tried in self.tried)

    @property
    def extent(self) -> str:
        """What was run, for people."""
        names, modes = ({getattr(tried, field): None for tried in self.tried} for field in ("name", "mode"))
        return f"{len(names)} answers judged by {' and '.join(modes)} in {self.sandbox}, {self.duration_s:.1f} s"

    @property
    def verdict(self) -> str:
        """`holds`, or the first thing that did not."""
        broken = [tried for tried in self.tried if not tried.held]
        if not broken:
            return "holds"
        more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"does not hold: {broken[0].name} ({broken[0].mode}): {'; '.join(broken[0].why_not)}{more}"
