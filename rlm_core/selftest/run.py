"""Judge every bundled answer as a model's would be, and look at what became of it and of what was planted."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from rlm_core.errors import InfrastructureFault
from rlm_core.problems import Mode
from rlm_core.sandbox import Limits, Sandbox
from rlm_core.sandbox.text import readable
from rlm_core.sandbox.zygote import Role
from rlm_core.selftest.answers import MODES, BundledAnswer, bundled
from rlm_core.selftest.canaries import Canaries, planted
from rlm_core.selftest.machinery import Machinery, can_list_processes
from rlm_core.selftest.report import SelfTest, Tried
from rlm_core.verifiers import Answer, Bench, Judgement, judge

LIMITS = Limits(load_s=1, case_s=0.05, patience=10, total_s=3, respawns=0, memory_mb=256, cpu_s=2)
"""Short, so that answers that hang cost little, and patient, so that honest ones pass on a busy machine."""

_LONGEST_WORDS = 100
_LONGEST_ESCAPE = 6
"""Bytes that one byte of output can become in a judgement, which holds text."""
_ROLES: dict[Mode, tuple[Role, ...]] = {"cases": ("code",), "pytest": ("code", "tests")}


def self_test(opened: Callable[[], AbstractContextManager[Sandbox]], modes: Sequence[Mode] = MODES) -> SelfTest:
    """Run the bundled answers in a sandbox.

    Args:
        opened: opens it. It is called once the canaries are planted, so that it has a chance to leak them.
        modes: the ways in which every answer is judged, one after the other.

    Raises:
        SandboxUnavailable: it cannot be opened.
        InfrastructureFault: the self-test itself cannot work here. What goes wrong with an answer is in the report.
    """
    started = time.monotonic()
    with planted() as canaries, opened() as sandbox:
        tried = [each for mode in modes for each in _Run(mode, sandbox, canaries).every()]
        name = sandbox.name
    return SelfTest(
        sandbox=name,
        tried=tuple(tried),
        not_looked_at=tuple(_not_looked_at(canaries)),
        duration_s=time.monotonic() - started,
    )


def _not_looked_at(canaries: Canaries) -> Iterator[str]:
    yield from canaries.missing
    for answer in bundled().answers:
        if not answer.is_for_here:
            yield f"{answer.name}: it is for {answer.only}"
    if not can_list_processes():
        yield "processes that are left: there is no /proc"


class _Run:
    """The answers in one mode."""

    def __init__(self, mode: Mode, sandbox: Sandbox, canaries: Canaries) -> None:
        self._mode = mode
        self._bench = Bench(sandbox)
        self._limits = sandbox.limits
        self._canaries = canaries
        self._problem = bundled().problem_for(mode)
        self._machinery = Machinery(sandbox, _ROLES[mode])

    def every(self) -> Iterator[Tried]:
        """Try one answer after the other."""
        for answer in bundled().answers:
            code = bundled().aimed(answer, self._canaries.addresses)
            if code is not None and answer.is_for_here and self._mode in answer.modes:
                yield self._try(answer, code)

    def _try(self, answer: BundledAnswer, code: str) -> Tried:
        came, said, why_not = "", "", []
        started = time.monotonic()
        for _ in range(answer.runs):
            try:
                judgement = self._judge(code, answer)
            except InfrastructureFault as fault:
                came = "could not be judged"
                why_not.append(f"it broke the machinery: {fault}")
            else:
                came = _in_words(judgement, answer)
                said += judgement.model_dump_json()
                why_not += self._wrong_with(judgement, answer)
        latency_s = time.monotonic() - started
        if latency_s > answer.runs * (self._limits.total_s + self._limits.zygote_s):
            why_not.append(f"it took {latency_s:.1f} s")
        why_not += [*self._canaries.damage(said), *self._machinery.changes()]
        return Tried(
            name=answer.name,
            mode=self._mode,
            tries=answer.tries,
            must=answer.must,
            came=came,
            why_not=tuple(dict.fromkeys(why_not)),
            latency_s=latency_s,
        )

    def _judge(self, code: str, answer: BundledAnswer) -> Judgement:
        """Judge an answer; an honest one that had no time on the clock once more, for the machine may be busy."""
        judgement = judge(Answer(code, code), self._problem, self._bench)
        if answer.must == "pass" and judgement.usage.ran_out_of_clock:
            judgement = judge(Answer(code, code), self._problem, self._bench)
        return judgement

    def _wrong_with(self, judgement: Judgement, answer: BundledAnswer) -> Iterator[str]:
        """What in a judgement must not be, whatever the answer has done."""
        if judgement.status != f"{answer.must}ed":
            yield f"{judgement.status}, and must {answer.must}" + (f": {judgement.reason}" if judgement.reason else "")
        kept_kb = len(judgement.output.encode()) / 1024
        if kept_kb > self._limits.output_kb * _LONGEST_ESCAPE:
            yield f"{kept_kb:.0f} KB of what it printed were kept"
        if judgement.usage.memory_mb > self._limits.memory_mb:
            yield f"it took {judgement.usage.memory_mb:.0f} MB of memory"


def _in_words(judgement: Judgement, answer: BundledAnswer) -> str:
    """What came of an answer: for an attack what stopped it, which it prints, or else what came of the first case."""
    if judgement.status == "passed":
        return "passed"
    printed = judgement.output.strip().partition("\n")[0] if answer.attack else ""
    detail = next((case.detail for case in judgement.cases if case.detail), "")
    return readable(printed or detail or judgement.reason, _LONGEST_WORDS)
