"""Problems that ask for the same in other words: the solution of one passes every case of the other."""

from collections.abc import Iterable

from pydantic import JsonValue

from rlm_core.problems import Case, Cases, Problem
from rlm_core.sandbox import Sandbox
from rlm_core.sandbox.inside.wire import Encoder
from rlm_core.sandbox.limits import Limits
from rlm_core.verifiers.cases import Raised, Unusable, Value, run_cases
from rlm_core.verifiers.values import same

_LIMITS = Limits()


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
    inputs = [case.input for other in alike for case in other.cases]
    if not inputs:
        return None
    results = iter(run_cases(sandbox, problem.reference, problem.entry_point, inputs))
    passed = [[_passes(next(results), case, other) for case in other.cases] for other in alike]
    return next((other for other, cases in zip(alike, passed, strict=True) if all(cases)), None)


def _passes(result: Value | Raised | Unusable, case: Case, problem: Problem) -> bool:
    if isinstance(result, Value):
        encoder = Encoder(_LIMITS.nodes, _LIMITS.depth, _LIMITS.frame_mb)
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
