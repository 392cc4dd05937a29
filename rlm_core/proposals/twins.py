"""Problems that ask for the same in other words: the solution of one passes every case of the other."""

import ast
from collections.abc import Callable, Iterable, Sequence

from pydantic import JsonValue

from rlm_core.problems import Case, Cases, Problem, Pytest, parts
from rlm_core.proposals.outcomes import Outcome, is_passed, outcomes
from rlm_core.sandbox import Sandbox

_CALLED = """
def called(source, name, arguments):
    space = {"__name__": "main"}
    exec(source, space)
    return space[name](*arguments)
"""


def twin(problem: Problem, others: Iterable[Problem], sandbox: Sandbox) -> Problem | None:
    """One of `others` that is the same as `problem` by what their references do, or None.

    The reference of `problem` passes every case of it. Only problems that take arguments of the same types are looked
    at. Of a problem that is judged by tests it is the other way round, as they cannot be run so often: its own
    reference passes every case of `problem`. Without a reference nothing is known.

    A case on which a reference is late, or loses its process, tells nothing: where most of the others are passed and
    none is failed, the two are twins.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    if problem.reference is None:
        return None
    own, others = _shapes(problem), list(others)
    alike = [other for other in others if isinstance(other.verifier, Cases) and own & _shapes(other)]
    if found := _first_passed(alike, lambda other: other.cases, lambda asked: _own_outcomes(problem, asked, sandbox)):
        return found
    tested = [other for other in others if any(isinstance(part, Pytest) for part in parts(other.verifier))]
    named = {other.id: name for other in tested if (name := _function_of(other))}
    return _first_passed(
        [other for other in tested if other.id in named],
        lambda _: problem.cases,
        lambda asked: [
            is_passed(case, outcome, problem, sandbox)
            for (_, case), outcome in zip(asked, _their_outcomes(asked, named, sandbox), strict=True)
        ],
    )


_AskedCases = Sequence[tuple[Problem, Case]]


def _first_passed(
    others: Sequence[Problem],
    cases_of: Callable[[Problem], Sequence[Case]],
    run: Callable[[_AskedCases], list[bool | None]],
) -> Problem | None:
    """The first of the others with which every case is passed; `run` says None where it is not known.

    One case with each at a time: the first tells most of them apart, and what is told apart is run no more.
    """
    unknown = [0] * len(others)
    left = list(range(len(others)))
    for number in range(max((len(cases_of(other)) for other in others), default=0)):
        asked = [i for i in left if number < len(cases_of(others[i]))]
        found = run([(others[i], cases_of(others[i])[number]) for i in asked])
        for i, passed in zip(asked, found, strict=True):
            unknown[i] += passed is None
        failed = {i for i, passed in zip(asked, found, strict=True) if passed is False}
        left = [i for i in left if i not in failed and 2 * unknown[i] < len(cases_of(others[i]))]
    return others[left[0]] if left else None


def _own_outcomes(problem: Problem, asked: _AskedCases, sandbox: Sandbox) -> list[bool | None]:
    """Whether the problem's reference passes cases of others."""
    found = outcomes(sandbox, str(problem.reference), problem.entry_point, [case.input for _, case in asked])
    return [is_passed(case, outcome, other, sandbox) for (other, case), outcome in zip(asked, found, strict=True)]


def _their_outcomes(asked: _AskedCases, named: dict[str, str], sandbox: Sandbox) -> list[Outcome]:
    """What the references of others give for cases of the problem."""
    inputs: list[list[JsonValue]] = [[other.reference, named[other.id], case.input] for other, case in asked]
    return outcomes(sandbox, _CALLED, "called", inputs)


def _function_of(problem: Problem) -> str | None:
    """The function that a reference is about: of its entry point's name, or the only one; None where that is open."""
    try:
        body = ast.parse(problem.reference or "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return problem.entry_point if problem.entry_point in names else names[0] if len(names) == 1 else None


def _shapes(problem: Problem) -> set[str]:
    """The types of the arguments, as the cases have them."""
    return {", ".join(map(_shape, case.input)) for case in problem.cases}


def _shape(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"list of {_shape(value[0])}" if value else "list"
    return type(value).__name__
