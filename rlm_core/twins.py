"""Problems that ask for the same in other words: the solution of one passes every case of the other."""

from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from rlm_core.problems import Case, Cases, Problem
from rlm_core.sandbox import Sandbox
from rlm_core.sandbox.inside.wire import Encoder
from rlm_core.verifiers.cases import Raised, Unusable, Value, encoder_for, run_cases
from rlm_core.verifiers.values import same

_FIRST = 1
"""Cases by which most problems are told apart; only where these are passed, the others are run too."""


def twin(problem: Problem, others: Iterable[Problem], sandbox: Sandbox) -> Problem | None:
    """The first of `others` whose every case the reference of `problem` passes, or None.

    Only problems that are judged by cases and take arguments of the same types are looked at. Without a reference
    nothing is known.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    if problem.reference is None:
        return None
    own = _shapes(problem)
    alike = [other for other in others if isinstance(other.verifier, Cases) and own & _shapes(other)]
    alike = _passed(problem, alike, [other.cases[:_FIRST] for other in alike], sandbox)
    alike = _passed(problem, alike, [other.cases[_FIRST:] for other in alike], sandbox)
    return alike[0] if alike else None


def _passed(
    problem: Problem, others: Sequence[Problem], cases: Sequence[Sequence[Case]], sandbox: Sandbox
) -> list[Problem]:
    """Those of `others` of which the reference passes all the given cases."""
    inputs = [case.input for some in cases for case in some]
    if not inputs:
        return list(others)
    assert problem.reference is not None
    encoder = encoder_for(sandbox.limits)
    results = iter(run_cases(sandbox, problem.reference, problem.entry_point, inputs))
    passed = [
        [_passes(next(results), case, other, encoder) for case in some]
        for other, some in zip(others, cases, strict=True)
    ]
    return [other for other, each in zip(others, passed, strict=True) if all(each)]


def _passes(result: Value | Raised | Unusable, case: Case, problem: Problem, encoder: Encoder) -> bool:
    if isinstance(result, Value):
        got, wanted = encoder.encode(result.value), encoder.encode(case.expected)
        return case.raises is None and same(got, wanted, problem.float_tolerance, problem.unordered)
    return isinstance(result, Raised) and result.exception == case.raises


def _shapes(problem: Problem) -> set[str]:
    """The types of the arguments, as the cases have them."""
    return {", ".join(map(_shape, case.input)) for case in problem.cases}


def _shape(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"list of {_shape(value[0])}" if value else "list"
    return type(value).__name__
