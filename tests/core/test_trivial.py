"""What answers that do no work would get."""

from typing import Any

import pytest

from rlm_core.problems import Problem
from rlm_core.verifiers.trivial import best_trivial_share


def problem(*cases: tuple[list[Any], Any], **fields: Any) -> Problem:
    """A problem with these inputs and expected values; an exception's class expects that exception."""
    content = [
        {"input": given, "raises": expected.__name__}
        if isinstance(expected, type)
        else {"input": given, "expected": expected}
        for given, expected in cases
    ]
    return Problem.model_validate({"prompt": "p", "entry_point": "f", "cases": content, **fields})


@pytest.mark.parametrize(
    ("cases", "share"),
    [
        # nothing trivial passes more than one case: f(n) = 3n + 5
        ([([1], 8), ([2], 11), ([3], 14), ([4], 17)], 1 / 4),
        # constants: the most frequent value, and the usual ones
        ([([1], 7), ([2], 7), ([3], 7), ([4], 9)], 3 / 4),
        ([([1], None), ([2], None), ([3], 11)], 2 / 3),
        ([([1, 2], True), ([2, 3], False), ([3, 4], True)], 2 / 3),
        ([([[5, 6]], []), ([[7]], [])], 1.0),
        # an argument
        ([([4, 9], 4), ([5, 9], 5), ([6, 1], 7)], 2 / 3),
        ([([4, 9], 9), ([5, 8], 8), ([6, 1], 7)], 2 / 3),
        ([([1, 2, 8], 8), ([1, 2, 9], 9), ([3, 4, 5], 6)], 2 / 3),
        ([(["a", 1, {}], 1), (["b", 2, {}], 2), (["c", 3, {}], 9)], 2 / 3),
        # its length and its order
        ([(["abc"], 3), (["ab"], 2), (["a"], 5)], 2 / 3),
        ([([[3, 1]], [1, 3]), ([[5, 4]], [4, 5]), ([[9, 8]], [9, 9])], 2 / 3),
        # turning it round is work
        ([(["ab"], "ba"), (["cd"], "dc"), (["ef"], "fe")], 1 / 3),
        # exceptions
        ([([1], ValueError), ([2], ValueError), ([3], 8)], 2 / 3),
        ([([1], ValueError), ([2], 9), ([3], 8)], 1 / 3),
        ([([None], ValueError), ([2], 2), ([3], 3), ([4], 9)], 2 / 4),
        # types are told apart, so no constant passes two
        ([([5], 1), ([6], 1.0), ([7], True), ([8], "1")], 1 / 4),
        ([([5], None), ([6], 0), ([7], False), ([8], "")], 1 / 4),
        # the text "raises" is not an exception
        ([([1], "raises"), ([2], ValueError), ([3], 8)], 1 / 3),
        # inputs that some of the trivial answers cannot take
        ([([], 3), ([], 3)], 1.0),
        ([([{"a": 1}], 2), ([{"b": 1}], 3)], 1 / 2),
        ([([None], 2), ([True], 3), ([1.5], 4)], 1 / 3),
        ([([[1, "a"]], 2), ([["a", None]], 3)], 1 / 2),
        # keys in another order are the same dict
        ([([1], {"a": 1, "b": 2}), ([2], {"b": 2, "a": 1}), ([3], {})], 2 / 3),
    ],
)
def test_the_best_trivial_share_is_as_counted_by_hand(cases: list[tuple[list[Any], Any]], share: float) -> None:
    assert best_trivial_share(problem(*cases)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("rule", "cases"),
    [
        # the argument itself passes all of these
        ({"unordered": True}, [([[3, 1, 2]], [2, 3, 1]), ([[6, 5, 4]], [5, 4, 6]), ([[9, 7, 8]], [7, 9, 8])]),
        # and 3.0 all of these
        ({"float_tolerance": 0.1}, [([1], 3.0), ([2], 3.01), ([3], 2.99)]),
    ],
    ids=["unordered", "tolerance"],
)
def test_a_trivial_answer_is_judged_as_leniently_as_any(
    rule: dict[str, Any], cases: list[tuple[list[Any], Any]]
) -> None:
    assert best_trivial_share(problem(*cases, **rule)) == 1.0
    assert best_trivial_share(problem(*cases)) < 1.0
