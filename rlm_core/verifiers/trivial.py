"""What answers that do no work would get.

Where cases decide, that needs no code to run: what a constant returns is known. Tests have to be run on some.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

from rlm_core.problems import Case, Cases, Problem
from rlm_core.sandbox.inside.wire import Encoder, NotPlain
from rlm_core.sandbox.limits import Limits
from rlm_core.verifiers.cases import encoder_for
from rlm_core.verifiers.values import same

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_TRIVIAL_BODIES = (
    "return None",
    "return 0",
    "return 1",
    "return True",
    "return ''",
    "return []",
    "return a[0]",
    "raise ValueError",
)
"""What trivial functions do."""
_CONSTANTS: tuple[Any, ...] = (None, 0, 1, -1, True, False, "", [], {}, 0.0)


def best_trivial_share(problem: Problem) -> float:
    """Largest share of the cases that one trivial answer passes: a constant, an argument, its length or its order.

    Values are compared as in verification, by the problem's own tolerance and order. For a problem that is not judged
    by cases, what its preparation found, or 0.
    """
    if problem.trivial_share is not None:
        return problem.trivial_share
    if not isinstance(problem.verifier, Cases):
        return 0.0
    encoder = encoder_for(Limits())
    return max(_passed(problem, answer, encoder) for answer in _answers(problem)) / len(problem.cases)


def _answers(problem: Problem) -> Iterator[Callable[[Case], Any]]:
    """Trivial answers, each as a function of the case. One that has no answer to a case raises."""
    for constant in (*_CONSTANTS, *(case.expected for case in problem.cases if not case.raises)):
        yield _constant(constant)
    for position in (0, 1, -1):
        yield _argument(position)
    yield _length
    yield _ordered
    yield _raise


def _constant(value: Any) -> Callable[[Case], Any]:
    return lambda _case: value


def _argument(position: int) -> Callable[[Case], Any]:
    return lambda case: case.input[position]


def _length(case: Case) -> Any:
    first: Any = case.input[0]
    return len(first)


def _ordered(case: Case) -> Any:
    first: Any = case.input[0]
    return sorted(first)


def _raise(_case: Case) -> Any:
    raise TypeError


def _passed(problem: Problem, answer: Callable[[Case], Any], encoder: Encoder) -> int:
    """How many cases an answer passes; one that raises passes those that expect an exception, whichever it is."""
    passed = 0
    for case in problem.cases:
        try:
            got = encoder.encode(answer(case))
            wanted = None if case.raises else encoder.encode(case.expected)
        except (IndexError, TypeError, NotPlain):
            passed += case.raises is not None
        else:
            passed += case.raises is None and same(got, wanted, problem.float_tolerance, problem.unordered)
    return passed


def trivial_code(reference: str) -> list[str]:
    """Trivial answers as code, for tests that have to be run: every name that the reference defines is such a function.

    The reference is a person's, and is only parsed here; one that is no code tells no names.
    """
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
    return ["".join(f"def {name}(*a, **k): {body}\n" for name in names) for body in _TRIVIAL_BODIES if names]
