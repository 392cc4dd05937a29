"""Test code run against one piece of code under examination, each in a process of its own that the other cannot touch.

The tests reach the code through proxies (inside/proxy.py). They speak to the parent over a connection that the code
does not have, and what they say about each test is looked at here, not believed to be a verdict.
"""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlm_core.records import Usage
from rlm_core.sandbox.child import Child, Reply, parse
from rlm_core.sandbox.connection import Outgrown
from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.sandbox import Zygotes
from rlm_core.sandbox.session import LOST_TOO_OFTEN, CpuDeadline, Session, describe
from rlm_core.sandbox.text import GARBAGE, readable

_PASSED = [["setup", "passed"], ["call", "passed"], ["teardown", "passed"]]


OutcomeKind = Literal["passed", "failed", "timeout", "crashed", "garbage"]


@dataclass(frozen=True)
class TestOutcome:
    """What became of one test."""

    kind: OutcomeKind
    why: str
    latency_s: float


@dataclass
class Findings:
    """What running the tests found."""

    ids: list[str] | None = None
    """Of all tests that there are, in their order; None when they could not be collected."""
    asked: frozenset[str] = frozenset()
    """What was asked of the code's objects; see `Link` in inside/proxy.py."""
    outcomes: dict[str, TestOutcome] = field(default_factory=dict)
    """By id, of the tests that were run."""
    not_loaded: Reply | None = None
    """What came of loading the code, if it could not be loaded."""
    reason: str = ""
    """Why tests could not be run, or not all of them."""
    output: str = ""
    usage: Usage = field(default_factory=Usage)


class Trial:
    """Runs tests against code, in new processes whenever one was lost, until all are done or too many were lost."""

    def __init__(self, zygotes: Zygotes, code: str, tests: str, allowed: Sequence[str] | None) -> None:
        """Prepare to run tests.

        Args:
            allowed: what the reference's objects were asked; None when the code is the reference.
        """
        self._allowed = None if allowed is None else list(allowed)
        self._zygotes = zygotes
        self._tests = tests
        self._limits = zygotes.code.limits
        self._session = Session(zygotes.code, code, entry_point=None)
        self._found = Findings()
        self._current: str | None = None
        self._began = 0.0

    def run(self) -> Findings:
        """Run every test once.

        Raises:
            ZygoteFault: the sandbox failed.
        """
        found = self._found
        loaded = self._session.load()
        while loaded.kind == "loaded" and not self._run_the_rest() and not found.reason:
            if not self._session.may_replace():
                found.reason = LOST_TOO_OFTEN
                break
            loaded = self._session.load()
        if loaded.kind != "loaded":
            found.not_loaded = loaded
        found.usage = self._session.finish()
        found.output = self._session.output
        return found

    def _run_the_rest(self) -> bool:
        """Run the tests that have not been run; whether that came to its end."""
        code = self._session.child
        child = self._zygotes.tests.fork(candidate=code)
        self._current = None
        done = list(self._found.outcomes)
        request = {"do": "run", "tests": self._tests, "done": done, "allowed": self._allowed}
        lost: Literal["timeout", "crashed", "garbage"]
        try:
            child.connection.send(wire.frame(request), self._deadline(code, child, self._limits.load_s))
            self._began = time.monotonic()
            while self._take(self._next(code, child)):
                pass
            return True
        except Outgrown as outgrown:
            lost, why = "crashed", str(outgrown)
        except TimeoutError:
            lost, why = "timeout", "it took too long"
        except OSError:
            lost, why = "crashed", "the tests' own process ended"
        except (ValueError, RecursionError):
            lost, why = "garbage", "what the tests' process sent makes no sense"
        except _Lost as error:
            lost, why = error.kind, error.why
        finally:
            ends = self._session.end(), self._zygotes.tests.end(child)
        if lost == "crashed" and -signal.SIGXCPU in {end.status for end in ends}:
            lost, why = "timeout", "it took too long"
        if lost == "crashed" and why == "":
            why = describe(ends[0])
        self._lose(lost, why)
        return False

    def _next(self, code: Child, child: Child) -> Any:
        """The next message of the tests."""
        seconds = self._limits.load_s if self._current is None else self._limits.case_s
        deadline = self._deadline(code, child, seconds)
        try:
            return parse(child.connection.receive(deadline))
        except Outgrown:
            raise
        except TimeoutError:
            self._session.note_timeout(deadline)
            raise

    def _deadline(self, code: Child, child: Child, cpu_s: float) -> CpuDeadline:
        return self._session.deadline(lambda: self._zygotes.code.cpu_s(code) + self._zygotes.tests.cpu_s(child), cpu_s)

    def _take(self, message: Any) -> bool:
        """Note what the tests say; whether there is more to come."""
        found = self._found
        match message:
            case ["collected", list(ids)] if all(isinstance(each, str) for each in ids):
                if found.ids is not None and found.ids != ids:
                    raise ValueError
                found.ids = ids
            case ["begin", str(name)] if self._current is None and name not in found.outcomes:
                self._current, self._began = name, time.monotonic()
            case ["end", str(name), list(phases), str(why), output, blocked] if name == self._current:
                if phases == _PASSED:
                    self._settle("passed")
                else:
                    self._settle("failed", readable(why or _skipped(phases)))
                self._session.note(output, blocked)
            case ["lost", ("crashed" | "garbage") as kind]:
                raise _Lost(kind, "" if kind == "crashed" else GARBAGE)
            case ["done", str(why), list(asked)] if self._current is None:
                found.asked |= frozenset(map(str, asked))
                if why:
                    found.ids, found.reason = None, f"the tests cannot be collected: {readable(why)}"
                return False
            case _:
                raise ValueError
        return True

    def _settle(self, kind: OutcomeKind, why: str = "") -> None:
        assert self._current is not None
        self._found.outcomes[self._current] = TestOutcome(kind, why, time.monotonic() - self._began)
        self._current = None

    def _lose(self, kind: Literal["timeout", "crashed", "garbage"], why: str) -> None:
        if self._current is None:
            self._found.reason = f"the tests cannot be collected: {why}"
        else:
            self._settle(kind, why)


class _Lost(Exception):
    """The tests said that the code is gone."""

    def __init__(self, kind: Literal["crashed", "garbage"], why: str) -> None:
        super().__init__(why)
        self.kind = kind
        self.why = why


def _skipped(phases: Sequence[Any]) -> str:
    """Phases that did not pass, for people."""
    return ", ".join(f"{phase[1]} in {phase[0]}" for phase in phases if isinstance(phase, list) and len(phase) == 2)
