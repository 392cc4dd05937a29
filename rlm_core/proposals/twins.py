"""Problems that ask for the same in other words: the solution of one passes every case of the other."""

from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from rlm_core.problems import Cases, Problem
from rlm_core.proposals.outcomes import Unknown, outcomes
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import encoder_for, passes


def twin(problem: Problem, others: Iterable[Problem], sandbox: Sandbox) -> Problem | None:
    """The first of `others` whose every case the reference of `problem` passes, or None.

    Only problems that are judged by cases and take arguments of the same types are looked at. Without a reference
    nothing is known. A case on which the reference is late, or loses its process, tells nothing: where most of the
    others are passed and none is failed, the two are twins.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    if problem.reference is None:
        return None
    own = _shapes(problem)
    alike = [other for other in others if isinstance(other.verifier, Cases) and own & _shapes(other)]
    unknown = [0] * len(alike)
    left = list(range(len(alike)))
    for number in range(max((len(other.cases) for other in alike), default=0)):
        # One case of each at a time: the first tells most of them apart, and what is told apart is run no more.
        asked = [i for i in left if number < len(alike[i].cases)]
        found = _passed(problem, [alike[i] for i in asked], number, sandbox)
        for i, passed in zip(asked, found, strict=True):
            unknown[i] += passed is None
        failed = {i for i, passed in zip(asked, found, strict=True) if passed is False}
        left = [i for i in left if i not in failed and 2 * unknown[i] < len(alike[i].cases)]
    return alike[left[0]] if left else None


def _passed(problem: Problem, others: Sequence[Problem], number: int, sandbox: Sandbox) -> list[bool | None]:
    """Whether the reference passes this case of each of the others; None where that is not known."""
    cases = [other.cases[number] for other in others]
    found = outcomes(sandbox, str(problem.reference), problem.entry_point, [case.input for case in cases])
    encoder = encoder_for(sandbox.limits)
    return [
        None if isinstance(outcome, Unknown) else passes(case, outcome, other, encoder)
        for case, outcome, other in zip(cases, found, others, strict=True)
    ]


def _shapes(problem: Problem) -> set[str]:
    """The types of the arguments, as the cases have them."""
    return {", ".join(map(_shape, case.input)) for case in problem.cases}


def _shape(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"list of {_shape(value[0])}" if value else "list"
    return type(value).__name__
