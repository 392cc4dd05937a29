"""What is proved of a proposal before it is trained on: its solution is right, and its cases tell right from wrong."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property

from rlm_core.config import FilterSection, VerifySection
from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.judging import open_configured
from rlm_core.problems import Case, Problem
from rlm_core.proposals.seen import variations
from rlm_core.proposals.slips import numbers_in, slips
from rlm_core.records import Refusal
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import Value, judge_cases, run_cases

_HASH_SEEDS = (0, 1, 2)
_MOST_SLIPS = 24
_MOST_VARIATIONS = 60
_HASTY = {"case_s": 0.1, "load_s": 0.5}
"""Limits under which slips run: some of them never end, and that is soon seen."""


class Prover:
    """Sandboxes of different hash seeds, and a hasty one, each opened when it is first needed."""

    def __init__(self, verify: VerifySection, stack: ExitStack) -> None:
        self._verify = verify
        self._stack = stack

    @cached_property
    def sandbox(self) -> Sandbox:
        """For whatever has to be run once."""
        return self._opened(_HASH_SEEDS[0])

    @cached_property
    def _others(self) -> list[Sandbox]:
        return [self._opened(seed) for seed in _HASH_SEEDS[1:]]

    @cached_property
    def _hasty(self) -> Sandbox:
        limits = self._verify.limits
        hasty = {name: min(value, getattr(limits, name)) for name, value in _HASTY.items()}
        return self._opened(_HASH_SEEDS[0], **hasty, respawns=0)

    def _opened(self, seed: int, **limits: float) -> Sandbox:
        changed = self._verify.limits.model_copy(update=limits)
        section = self._verify.model_copy(update={"limits": changed})
        return self._stack.enter_context(open_configured(section, seed))

    def refusal(self, problem: Problem, section: FilterSection) -> Refusal | None:
        """Why a proposal is not proved, or None.

        Its solution passes its cases in several orders, under several hash seeds, and enough of its slips do not.
        """
        if problem.reference is None:
            return Refusal(rule="reference", reason="it has no solution", value=0.0, limit=1.0)
        try:
            return self._wrong(problem) or self._unnoticed(problem, section.min_slips_caught)
        except ProblemError as error:
            return Refusal(rule="cases", reason=str(error), value=type(error).__name__, limit="none")
        except InfrastructureFault as fault:
            return Refusal(rule="infrastructure", reason=str(fault), value=type(fault).__name__, limit="none")

    def _wrong(self, problem: Problem) -> Refusal | None:
        judgement = judge_cases(self.sandbox, str(problem.reference), problem)
        if judgement.status != "passed":
            reason = f"its own solution fails: {judgement.reason}"
            return Refusal(rule="reference", reason=reason, value=judgement.score, limit=1.0)
        cases = problem.cases
        for sandbox, order in zip(self._others, (cases[::-1], cases[1::2] + cases[::2]), strict=True):
            judgement = judge_cases(sandbox, str(problem.reference), problem.model_copy(update={"cases": order}))
            if judgement.status != "passed":
                reason = f"its own solution passes, but not in another order and hash seed: {judgement.reason}"
                return Refusal(rule="deterministic", reason=reason, value=judgement.score, limit=1.0)
        return None

    def _unnoticed(self, problem: Problem, least: float) -> Refusal | None:
        caught, missed = self.slips_caught(problem)
        share = caught / (caught + missed) if caught + missed else 1.0
        if share >= least:
            return None
        reason = f"its cases catch {caught} of {caught + missed} small mistakes in its solution, {share:.0%}"
        return Refusal(rule="slips", reason=f"{reason}; at least {least:.0%} needed", value=share, limit=least)

    def slips_caught(self, problem: Problem) -> tuple[int, int]:
        """How many small mistakes in the solution its cases catch, and how many they miss.

        A slip that passes counts as missed only when it is known to do something else: for an input that is like those
        of the cases. One that does the same for all of these is no mistake.

        Raises:
            ProblemError, InfrastructureFault: as `judge_cases`.
        """
        assert problem.reference is not None
        try:
            tried = slips(problem.reference, _MOST_SLIPS)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 0, 0
        passed = [code for code in tried if self._passes(code, problem)]
        further = self._further(problem) if passed else None
        missed = sum(not self._passes(code, further) for code in passed) if further else 0
        return len(tried) - len(passed), missed

    def _passes(self, code: str, problem: Problem) -> bool:
        return judge_cases(self._hasty, code, problem).status == "passed"

    def _further(self, problem: Problem) -> Problem | None:
        """The problem with other cases, as its solution answers them; None when there are none."""
        assert problem.reference is not None
        given = [case.input for case in problem.cases]
        inputs = variations(given, _MOST_VARIATIONS, numbers_in(problem.reference))
        results = run_cases(self._hasty, problem.reference, problem.entry_point, inputs)
        cases = [Case(input=i, expected=r.value) for i, r in zip(inputs, results, strict=True) if isinstance(r, Value)]
        return problem.model_copy(update={"cases": tuple(cases)}) if cases else None


@contextmanager
def open_prover(verify: VerifySection) -> Iterator[Prover]:
    """A prover; its sandboxes are closed at the end. What it is asked raises SandboxUnavailable when there are none."""
    with ExitStack() as stack:
        yield Prover(verify, stack)
