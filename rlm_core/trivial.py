"""What answers that do no work would get. Needs no code to run: what a constant returns is known."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlm_core.records import Case, Problem

_CONSTANTS: tuple[Any, ...] = (None, 0, 1, -1, True, False, "", [], {}, 0.0)


def best_trivial_share(problem: Problem) -> float:
    """Largest share of the cases that one trivial answer passes: a constant, an argument, its length or its order."""
    return max(_shares(problem))


def _shares(problem: Problem) -> Iterator[float]:
    total = len(problem.cases)
    # Constants, those among the expected values included; and raising always.
    counts = Counter("raises" if case.raises else _key(case.expected) for case in problem.cases)
    yield max(counts.values()) / total
    for constant in _CONSTANTS:
        yield counts[_key(constant)] / total
    for answer in (_argument(0), _argument(1), _argument(-1), _length, _ordered):
        yield sum(_passes(answer, case) for case in problem.cases) / total


def _passes(answer: Any, case: Case) -> bool:
    if case.raises:
        return False
    try:
        return _key(answer(case.input)) == _key(case.expected)
    except (IndexError, TypeError):
        return False


def _argument(position: int) -> Any:
    return lambda arguments: arguments[position]


def _length(arguments: list[Any]) -> Any:
    return len(arguments[0])


def _ordered(arguments: list[Any]) -> Any:
    return sorted(arguments[0])


def _key(value: Any) -> str:
    """A text that is equal for values that are equal in type and content: JSON tells 1, 1.0 and true apart."""
    return json.dumps(value, sort_keys=True)
