"""Problems that ask for the same in other words: the solution of one passes every case of the other."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import JsonValue

from rlm_core.problems import Cases, Problem
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import Value, encoder_for, passes, run_cases

_AT_ONCE = 50
"""First cases that one call runs."""
_HARNESS = """

def outcomes_of_each(inputs):
    found = []
    for given in inputs:
        try:
            found.append([{entry_point}(*given)])
        except Exception:
            found.append([])
    return found
"""
"""Put behind a solution; an empty list stands for an exception."""


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
    alike = _may_be_passed(problem.reference, problem.entry_point, alike, sandbox)
    inputs = [case.input for other in alike for case in other.cases]
    encoder = encoder_for(sandbox.limits)
    results = iter(run_cases(sandbox, problem.reference, problem.entry_point, inputs) if inputs else [])
    passed = [[passes(case, next(results), other, encoder) for case in other.cases] for other in alike]
    return next((other for other, each in zip(alike, passed, strict=True) if all(each)), None)


def _may_be_passed(reference: str, entry_point: str, others: Sequence[Problem], sandbox: Sandbox) -> list[Problem]:
    """Those of `others` whose first case is passed, which tells most problems apart, or is not known to be failed."""
    inputs = [other.cases[0].input for other in others]
    calls: list[list[JsonValue]] = [[[*inputs[i : i + _AT_ONCE]]] for i in range(0, len(inputs), _AT_ONCE)]
    code = reference + _HARNESS.format(entry_point=entry_point)
    encoder = encoder_for(sandbox.limits)
    found: list[Problem] = []
    for number, result in enumerate(run_cases(sandbox, code, "outcomes_of_each", calls) if calls else []):
        some = others[number * _AT_ONCE :][:_AT_ONCE]
        if not isinstance(result, Value):
            found += some
            continue
        outcomes: Any = result.value
        for other, outcome in zip(some, outcomes, strict=True):
            case = other.cases[0]
            if passes(case, Value(value=outcome[0]), other, encoder) if outcome else case.raises is not None:
                found.append(other)
    return found


def _shapes(problem: Problem) -> set[str]:
    """The types of the arguments, as the cases have them."""
    return {", ".join(map(_shape, case.input)) for case in problem.cases}


def _shape(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"list of {_shape(value[0])}" if value else "list"
    return type(value).__name__
