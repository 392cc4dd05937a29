"""Inputs that are like those of a problem's cases."""

from typing import Any

import pytest

from rlm_core.proposals.seen import admits, variations


@pytest.mark.parametrize(
    ("seen", "like", "unlike"),
    [
        ([1, 9], [1, 5, 9], [0, 10, -1, 5.0, True, "5", None]),
        ([0.5, 2.0], [1.0], [1, 2.5]),
        ([True], [True], [False, 1]),
        (["ab", "abcd"], ["abc", "zz"], ["a", "abcde", "aB", "a1", "a b", ""]),
        (["a b"], ["b c"], ["a-b", "   ", " ab", "ab "]),
        ([[1, 2], [5, 9]], [[2, 8]], [[], [2], [8, 2], [1, 10], [1, "2"], [1, [2]]]),
        ([[3, 1, 3], []], [[1, 3], [3, 3]], [[0, 1], [1, 2, 3, 1]]),
        ([[3, 1], [2, 5]], [[5, 1]], [[2, 2]]),
        ([[["a"]], [["b", "c"]]], [[["z"]]], [["a"], [[]], [[1]]]),
        ([{"a": 1}], [{"a": 1}], [{"a": 2}, {}]),
        (
            [{"name": "ab", "age": 3}, {"name": "xyz", "age": 9}],
            [{"name": "uvw", "age": 5}],
            [{"name": "ab", "age": 10}, {"name": "ab"}, {"name": "ab", "age": 3, "more": 3}, {"name": 3, "age": 3}],
        ),
        (
            [{"a": 1, "b": 7}, {"x": 4}],
            [{"c": 3}, {"a": 7, "z": 1}],
            [{}, {"a": 1, "b": 1, "c": 1}, {"a": 8}, {"ab": 1}, {"A": 1}],
        ),
        (
            [{"a": ["b"], "b": []}, {"c": []}],
            [{"x": ["x"]}, {"a": [], "b": ["a"]}],
            [{"a": ["b"]}, {"a": ["b"], "b": ["c"]}],
        ),
        ([{"a": ["b"], "b": ["a"]}, {"c": []}], [{"a": [], "b": []}], [{"a": ["b"], "b": []}]),
        ([None, 3], [None, 3], [4]),
        ([], [], [1, [], ""]),
    ],
)
def test_a_value_is_like_others_or_not(seen: list[Any], like: list[Any], unlike: list[Any]) -> None:
    assert [value for value in like if not admits(seen, value)] == []
    assert [value for value in unlike if admits(seen, value)] == []


def test_variations_are_new_and_like_the_inputs() -> None:
    inputs: list[list[Any]] = [[[1, 4, 2], 1], [[5, 2], 3], [[7, 7, 7, 9], 2]]
    made = variations(inputs, 100)
    assert len(made) > 10
    assert [each for each in made if each in inputs or made.count(each) > 1] == []
    lists, numbers = zip(*inputs, strict=True)
    assert all(admits(lists, values) and admits(numbers, number) for values, number in made)


def test_variations_are_of_every_input_when_few_are_wanted() -> None:
    inputs: list[list[Any]] = [[10], [20], [30]]
    assert variations(inputs, 3) == [[11], [21], [29]]


def test_numbers_that_are_hinted_at_come_first_where_they_are_like_the_others() -> None:
    assert variations([[10], [30]], 4, hints=[20, 99]) == [[20], [21], [19], [11]]
    assert [[20, 30]] in variations([[[10, 30]]], 2, hints=[20])


def test_objects_vary_in_what_they_hold_and_in_their_names() -> None:
    assert [{"a": 4}] in variations([[{"a": 3}], [{"a": 5}]], 9)
    assert [{"b": 5}] in variations([[{"a": 3, "b": 5}], [{"c": 4}]], 99)


def test_where_nothing_can_vary_there_are_none() -> None:
    assert variations([[{"a": 1}], [{"b": 1}]], 5) == []
    assert variations([[], []], 5) == []
