"""What is proved of a proposal before it is trained on: its solution is right, and its cases tell right from wrong."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

from rlm_core.config import FilterSection, VerifySection
from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.judging import open_configured
from rlm_core.problems import Case, Problem
from rlm_core.proposals.outcomes import is_passed, outcomes
from rlm_core.proposals.seen import variations
from rlm_core.proposals.slips import numbers_in, slips
from rlm_core.records import Refusal
from rlm_core.sandbox import Limits, Sandbox
from rlm_core.verifiers.cases import Value, judge_cases
from rlm_core.verifiers.judgement import Judgement
from rlm_core.verifiers.trivial import best_trivial_share

_HASH_SEEDS = (0, 1, 2)
_MOST_SLIPS = 24
_FEWEST_SLIPS = 2
"""Nearly every solution has one that returns None in place of the value, which any case catches: it proves nothing."""
_MOST_VARIATIONS = 60
_SLOWEST_S = 0.05
"""CPU seconds that a proposal's solution may take for all of its cases, the start of its process included. What takes
longer cannot be proved in the time that there is: its slips alone are some twenty runs."""
_QUICK_S = 0.02
"""A solution that takes so long is quick: a slip that takes far longer for one case alone does something else."""
_HASTY = {"case_s": 0.1, "load_s": 0.5}
"""Limits under which proposals and slips run: some of them never end, and that is soon seen."""


class Prover:
    """Sandboxes of different hash seeds and limits, each opened when it is first needed."""

    def __init__(self, verify: VerifySection, stack: ExitStack, patient: bool = False) -> None:
        """See `open_prover`."""
        self._verify = verify
        self._stack = stack
        self._patient = patient

    @property
    def limits(self) -> Limits:
        return self._verify.limits

    @cached_property
    def sandbox(self) -> Sandbox:
        """With the limits of the config, for many inputs in one call."""
        return self._opened(_HASH_SEEDS[0])

    @cached_property
    def hasty(self) -> Sandbox:
        """For solutions of which nothing is known yet."""
        return self._opened_hastily(_HASH_SEEDS[0])

    @cached_property
    def _others(self) -> list[Sandbox]:
        opened = self._opened if self._patient else self._opened_hastily
        return [opened(seed) for seed in _HASH_SEEDS[1:]]

    def _opened_hastily(self, seed: int) -> Sandbox:
        limits = self._verify.limits
        return self._opened(
            seed, **{name: min(value, getattr(limits, name)) for name, value in _HASTY.items()}, respawns=0
        )

    def _opened(self, seed: int, **limits: float) -> Sandbox:
        changed = self._verify.limits.model_copy(update=limits)
        section = self._verify.model_copy(update={"limits": changed})
        return self._stack.enter_context(open_configured(section, seed))

    def refusal(self, problem: Problem, section: FilterSection) -> Refusal | None:
        """Why a proposal is not proved, or None.

        Its solution passes its cases in several orders, under several hash seeds and in little time, and enough of its
        slips do not.
        """
        if problem.reference is None:
            return Refusal(rule="reference", reason="it has no solution", value=0.0, limit=1.0)
        try:
            return self._wrong(problem) or self._unnoticed(problem, section)
        except ProblemError as error:
            return Refusal.of_error("cases", error)
        except InfrastructureFault as fault:
            return Refusal.of_error("infrastructure", fault)

    def _wrong(self, problem: Problem) -> Refusal | None:
        cases = problem.cases
        used_s = []
        for sandbox, order in (
            (self.sandbox if self._patient else self.hasty, cases),
            *zip(self._others, (cases[::-1], cases[1::2] + cases[::2]), strict=True),
        ):
            judgement = judge_cases(sandbox, str(problem.reference), problem.model_copy(update={"cases": order}))
            used_s.append(judgement.usage.cpu_s)
            if judgement.status != "passed":
                return _not_passed(judgement, order is cases, self._patient)
        if min(used_s) > _SLOWEST_S and not self._patient:
            return _slow(min(used_s))
        return None

    def _unnoticed(self, problem: Problem, section: FilterSection) -> Refusal | None:
        caught, missed = self.slips_caught(problem)
        tried, least = caught + missed, section.min_slips_caught
        if tried < _FEWEST_SLIPS:
            return _too_easily_guessed(problem, tried, section.max_trivial_share / 2)
        share = caught / tried
        if share >= least:
            return None
        reason = f"its cases catch {caught} of {tried} small mistakes in its solution, {share:.0%}"
        return Refusal(rule="slips", reason=f"{reason}; at least {least:.0%} needed", value=share, limit=least)

    def slips_caught(self, problem: Problem) -> tuple[int, int]:
        """How many small mistakes in the solution its cases catch, and how many they miss.

        A slip that passes counts as missed only when it is known to do something else: for an input that is like those
        of the cases. One that does the same for all of these is no mistake. One that is late is caught where the
        solution is quick; else it may only be slow, and nothing is known of it.

        Raises:
            ProblemError, InfrastructureFault: as `judge_cases`.
        """
        assert problem.reference is not None
        try:
            tried = slips(problem.reference, _MOST_SLIPS)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 0, 0
        own = judge_cases(self.hasty, problem.reference, problem)
        quick = own.status == "passed" and own.usage.cpu_s <= _QUICK_S
        judged = [(code, judge_cases(self.hasty, code, problem, to_the_end=False)) for code in tried]
        passed = [code for code, judgement in judged if judgement.status == "passed"]
        caught = sum(judgement.status != "passed" and (quick or not _late(judgement)) for _, judgement in judged)
        return caught, self._different(passed, problem) if passed else 0

    def _different(self, codes: Sequence[str], problem: Problem) -> int:
        """How many of these programs are known to do something else than the solution, on inputs like the cases'."""
        given = [case.input for case in problem.cases]
        inputs = variations(given, _MOST_VARIATIONS, numbers_in(str(problem.reference)))
        wanted = outcomes(self.sandbox, str(problem.reference), problem.entry_point, inputs)
        further = [
            Case(input=each, expected=outcome.value)
            for each, outcome in zip(inputs, wanted, strict=True)
            if isinstance(outcome, Value)
        ]
        return sum(self._differs(code, problem, further) for code in codes) if further else 0

    def _differs(self, code: str, problem: Problem, further: Sequence[Case]) -> bool:
        found = outcomes(self.sandbox, code, problem.entry_point, [case.input for case in further])
        return any(
            is_passed(case, outcome, problem, self.sandbox) is False
            for case, outcome in zip(further, found, strict=True)
        )


def _not_passed(judgement: Judgement, in_order: bool, patient: bool) -> Refusal:
    """Why a solution that does not pass is none."""
    if _late(judgement) and not patient:
        return _slow(judgement.usage.cpu_s)
    if in_order:
        reason = f"its own solution fails: {judgement.reason}"
        return Refusal(rule="reference", reason=reason, value=judgement.score, limit=1.0)
    reason = f"its own solution passes, but not in another order and hash seed: {judgement.reason}"
    return Refusal(rule="deterministic", reason=reason, value=judgement.score, limit=1.0)


def _late(judgement: Judgement) -> bool:
    """Whether the first thing that went wrong is that it took too long."""
    wrong = next((case for case in judgement.cases if case.outcome not in ("passed", "not_run")), None)
    return wrong is not None and wrong.outcome == "timeout"


def _slow(used_s: float) -> Refusal:
    reason = f"its own solution takes {used_s:.2f} s of CPU for its cases, at most {_SLOWEST_S:g} s allowed"
    return Refusal(rule="slow", reason=reason, value=used_s, limit=_SLOWEST_S)


def _too_easily_guessed(problem: Problem, tried: int, most: float) -> Refusal | None:
    """Where slips prove nothing, the cases have to tell the solution from a trivial answer all the better."""
    share = best_trivial_share(problem)
    if share <= most:
        return None
    reason = f"no mistake in its solution can prove its cases ({tried} tried), and a trivial answer passes {share:.0%}"
    return Refusal(rule="few_slips", reason=f"{reason}; then at most {most:.0%} allowed", value=share, limit=most)


@contextmanager
def open_prover(verify: VerifySection, patient: bool = False) -> Iterator[Prover]:
    """A prover; its sandboxes are closed at the end. What it is asked raises SandboxUnavailable when there are none.

    Args:
        patient: whether a solution may take as long as an answer may; else it has to be quick.
    """
    with ExitStack() as stack:
        yield Prover(verify, stack, patient)
