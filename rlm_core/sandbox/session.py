"""One piece of code under examination: loaded once, called many times, loaded again when its child was lost."""

import math
import signal
import time
from collections.abc import Callable
from typing import Any

from rlm_core.records import Usage
from rlm_core.sandbox.child import Child, Reply
from rlm_core.sandbox.connection import Deadline
from rlm_core.sandbox.inside.wire import Tree
from rlm_core.sandbox.text import readable
from rlm_core.sandbox.zygote import End, Zygote

_FREE_S = 0.02
"""For so long a request runs before its CPU time is looked at: most are answered by then and cost no look."""
_MEMORY_LOOK_S = 0.02
"""So often a child is looked at whose memory no kernel limits, from the first moment of a request on."""
_SLACK = 0.98
"""Share of the allowed CPU at which it counts as used up; without it the last moments would be many tiny waits."""
LOST_TOO_OFTEN = "its process was lost too often"
_MOST_NOTES = 20
_SLEEPER_SHARE = 0.5
"""A request that ran into its backstop with less than this share of its CPU time was sleeping, not working."""


class CpuDeadline(Deadline):
    """A request's limit: seconds of CPU time of its child, and a longer time on the wall clock as the backstop.

    On a busy machine a process that was given half a processor is not judged slow; code that sleeps is still stopped.
    """

    def __init__(
        self, used_so_far: Callable[[], float], cpu_s: float, backstop_s: float, look_s: float | None = None
    ) -> None:
        """Start the clocks.

        Args:
            used_so_far: gives the CPU seconds that the processes in question have used.
            cpu_s: how many more they may use.
            backstop_s: seconds on the wall clock until the end in any case.
            look_s: seconds between two looks, the first of which is at once; None for as few looks as will do.
        """
        super().__init__(min(_FREE_S if look_s is None else 0, backstop_s))
        self._used_so_far = used_so_far
        self._look_s = math.inf if look_s is None else look_s
        self._cpu_s = cpu_s
        self._backstop = time.monotonic() + backstop_s
        self._at_start: float | None = None
        self.used_s = 0.0
        """CPU seconds that the request had used when last looked at."""

    def left_s(self) -> float:
        """Seconds until the next look at the CPU time, more than 0.

        Raises:
            TimeoutError: the CPU time is used up, or the backstop has passed.
            Outgrown: the memory is, where looking is what limits it.
        """
        now = time.monotonic()
        if now >= self._until:
            cpu = self._used_so_far()
            self._at_start = cpu if self._at_start is None else self._at_start
            self.used_s = cpu - self._at_start
            if now >= self._backstop or self.used_s >= _SLACK * self._cpu_s:
                raise TimeoutError
            self._until = min(self._backstop, now + min(self._cpu_s - self.used_s, self._look_s))
        return max(self._until - now, 1e-6)

    @property
    def slept(self) -> bool:
        """Whether little work was done in the time that passed."""
        return self.used_s < _SLEEPER_SHARE * self._cpu_s

    @property
    def ended_by_the_clock(self) -> bool:
        """Whether, when it passed, CPU time was left."""
        return self.used_s < _SLACK * self._cpu_s


class Session:
    """Loads code and calls its entry point, each request within its own limit and all of them within `total_s`."""

    def __init__(self, zygote: Zygote, code: str, entry_point: str | None) -> None:
        """Prepare to examine code; an `entry_point` of None asks for none."""
        self._zygote = zygote
        self._code = code
        self._entry_point = entry_point
        self._limits = zygote.limits
        self._end_of_time = time.monotonic() + self._limits.total_s
        self._child: Child | None = None
        self._replacements = self._limits.respawns
        self._patience = self._limits.patience
        self._ends: list[End] = []
        self._blocked: dict[str, None] = {}
        self.latency_s = 0.0
        """Time on the clock that the last request took."""
        self._ran_out_of_clock = False
        self.output = ""
        """What the code has printed so far, in all its children; cut to `output_kb`."""

    def load(self) -> Reply:
        """Load the code into a new child: "loaded", "missing" (no such function), "raised", or lost."""
        self._child = self._zygote.fork()
        return self._ask("load", self._limits.load_s, code=self._code, entry_point=self._entry_point)

    def call(self, arguments: Tree) -> Reply:
        """Call the entry point with encoded arguments: "returned", "unplain", "raised", lost, or "not_run"."""
        if self._child is None:
            if not self.may_replace():
                return Reply("not_run", LOST_TOO_OFTEN)
            again = self.load()
            if again.kind != "loaded":
                self._replacements = 0
                return Reply("not_run", "it did not load a second time")
        return self._ask("call", self._limits.case_s, arguments=arguments)

    @property
    def child(self) -> Child:
        """The process that the code was loaded into, for test code to speak to."""
        assert self._child is not None
        return self._child

    def end(self) -> End:
        """End that process."""
        return self._end_child(self.child)

    def may_replace(self) -> bool:
        """Whether the code's process may be started once more, and counts that it was."""
        self._replacements -= 1
        return self._replacements >= 0

    def finish(self) -> Usage:
        """End the code's process; what all its processes took."""
        if self._child is not None:
            self._end_child(self._child)
        return Usage(
            cpu_s=sum(end.cpu_s for end in self._ends),
            memory_mb=max((end.memory_mb for end in self._ends), default=0.0),
            ran_out_of_clock=self._ran_out_of_clock,
            blocked=tuple(self._blocked),
        )

    def _end_child(self, child: Child) -> End:
        self._child = None
        self._ends.append(self._zygote.end(child))
        return self._ends[-1]

    def _ask(self, do: str, cpu_s: float, **fields: Any) -> Reply:
        assert self._child is not None
        child = self._child
        try:
            deadline = self.deadline(lambda: self._zygote.cpu_s(child), cpu_s)
        except TimeoutError:
            return Reply("not_run", "no time was left")
        started = time.monotonic()
        reply = child.ask(do, deadline, **fields)
        self.latency_s = time.monotonic() - started
        self.note(reply.output, reply.blocked)
        if reply.kind == "timeout":
            self.note_timeout(deadline)
        return self._explain(reply) if reply.lost else reply

    def deadline(self, used_so_far: Callable[[], float], cpu_s: float) -> CpuDeadline:
        """The deadline of a request that may take so much CPU time.

        Raises:
            TimeoutError: no time is left.
        """
        left_s = self._end_of_time - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        look_s = _MEMORY_LOOK_S if self._zygote.polls_memory else None
        return CpuDeadline(used_so_far, cpu_s, min(cpu_s * self._patience, left_s), look_s)

    def note(self, output: Any, blocked: Any) -> None:
        """Keep what came with a reply: what the code printed, and what it tried that it may not."""
        if isinstance(output, str):
            self.output = (self.output + output)[: self._limits.output_kb << 10]
        if isinstance(blocked, list):
            new = dict.fromkeys(readable(what) for what in blocked[:_MOST_NOTES] if isinstance(what, str))
            self._blocked = dict(list((self._blocked | new).items())[:_MOST_NOTES])

    def note_timeout(self, deadline: CpuDeadline) -> None:
        """Draw the conclusions from a deadline that passed."""
        self._ran_out_of_clock = self._ran_out_of_clock or deadline.ended_by_the_clock
        if deadline.slept:
            self._patience = 1  # it has shown that it sleeps, and waiting for that once is enough

    def _explain(self, reply: Reply) -> Reply:
        """Give up the child, and say for a crash how it ended."""
        assert self._child is not None
        end = self._end_child(self._child)
        if reply.kind != "crashed" or reply.payload is not None:
            return reply
        return Reply("timeout") if end.status == -signal.SIGXCPU else Reply("crashed", describe(end))


def describe(end: End) -> str:
    """How a process ended, for people."""
    if end.status >= 0:
        return f"its process ended with status {end.status}"
    if end.status == -signal.SIGKILL:  # ours, most likely: it hung up, and was still there
        return "its process closed its connection or was killed"
    try:
        return f"its process was ended by {signal.Signals(-end.status).name}"
    except ValueError:
        return f"its process was ended by signal {-end.status}"
