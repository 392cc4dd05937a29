"""Two policies on one suite: numbers against hand and slow references, and exams that cannot be compared."""

import tracemalloc
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from rlm_core.bootstrap import bootstrap_interval
from rlm_core.comparison import ExamPair, compare, sign_flip_p_values
from rlm_core.errors import StageFailed
from tests.samples.exam_reports import pair, report


def sign_flip_p_value(differences: Sequence[int]) -> float:
    """Share of all ways to choose the signs that give at least the observed sum."""
    observed = sum(differences)
    sums = [
        sum(sign * d for sign, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed for total in sums) / len(sums)


def test_equal_policies_have_no_difference_and_p_1() -> None:
    result = compare(pair([2] * 20, [2] * 20), seed=0, confidence=0.9)
    assert (result.incumbent, result.candidate, result.difference) == (0.5, 0.5, 0.0)
    assert (result.p_value, result.interval, result.better, result.worse) == (1.0, (0.0, 0.0), 0, 0)


def test_a_gain_on_every_problem_is_sure() -> None:
    few = compare(pair([0] * 10, [4] * 10), seed=0, confidence=0.9)
    assert (few.difference, few.interval, few.better, few.worse) == (1.0, (1.0, 1.0), 10, 0)
    assert few.p_value == pytest.approx(1 / 1024)  # one of 2^10 choices of signs
    many = compare(pair([0] * 40, [4] * 40), seed=0, confidence=0.9)
    assert many.p_value == pytest.approx(0.5**40, abs=1e-12)


def test_a_loss_on_every_problem_is_no_gain() -> None:
    result = compare(pair([4] * 10, [0] * 10), seed=0, confidence=0.9)
    assert (result.difference, result.p_value, result.better, result.worse) == (-1.0, 1.0, 0, 10)


@pytest.mark.parametrize(
    ("incumbent", "candidate", "p_value"),
    [
        ([0, 1, 2], [1, 3, 3], 1 / 8),  # +1 +2 +1 = 4: only with all signs as they are
        ([0, 1, 2], [2, 2, 1], 3 / 8),  # +2 +1 -1 = 2: itself, +2 -1 +1 = 2, +2 +1 +1 = 4
        ([0, 1, 2], [2, 1, 2], 4 / 8),  # +2  0  0 = 2: half of the signs
        ([2, 2, 2], [1, 3, 2], 6 / 8),  # -1 +1  0 = 0: all but -1 -1
        ([2, 2, 2], [1, 1, 1], 8 / 8),
    ],
)
def test_the_p_value_for_three_problems_is_as_counted_by_hand(
    incumbent: list[int], candidate: list[int], p_value: float
) -> None:
    assert compare(pair(incumbent, candidate), seed=0, confidence=0.9).p_value == pytest.approx(p_value)


@settings(max_examples=30)
@given(
    counts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8), seed=st.integers(0, 99)
)
@example(counts=[(1, 4), (3, 0)], seed=0)  # in fifths, 3 - 3 is not quite 0 in floating point
def test_the_p_value_for_few_problems_is_exact(counts: list[tuple[int, int]], seed: int) -> None:
    incumbent, candidate = zip(*counts, strict=True)
    result = compare(pair(incumbent, candidate, k=5), seed, 0.9)
    assert result.p_value == pytest.approx(sign_flip_p_value([b - a for a, b in counts]))
    assert result.p_worse == pytest.approx(sign_flip_p_value([a - b for a, b in counts]))
    assert result.difference == pytest.approx(sum(b - a for a, b in counts) / (5 * len(counts)))


def test_a_suite_of_one_problem_can_be_compared() -> None:
    assert compare(pair([0], [4]), seed=0, confidence=0.9).p_value == pytest.approx(0.5)
    assert compare(pair([4], [0]), seed=0, confidence=0.9).p_value == pytest.approx(1.0)


def test_the_interval_holds_the_difference_and_narrows_with_less_confidence() -> None:
    noisy = pair([2] * 20, [4] * 12 + [1] * 8)
    wide, narrow = (compare(noisy, seed=0, confidence=confidence) for confidence in (0.99, 0.6))
    assert wide.difference == narrow.difference == pytest.approx((12 * 0.5 - 8 * 0.25) / 20)
    assert wide.interval[0] < narrow.interval[0] < wide.difference < narrow.interval[1] < wide.interval[1]


def test_an_interval_over_many_problems_takes_little_memory_and_is_as_wide_as_the_formula_says() -> None:
    values = np.arange(5_000)[:, None] % 2  # mean .5, of variance .25 / 5,000
    tracemalloc.start()
    [low], [high] = bootstrap_interval(values, seed=0, confidence=0.95)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (low, high) == pytest.approx((0.5 - 0.01386, 0.5 + 0.01386), abs=0.001)
    assert peak < 60e6  # all draws at once would be 800 MB


def test_problems_are_paired_by_id_and_not_by_place() -> None:
    incumbent, candidate = report([0, 4, 2]), report([1, 4, 2])
    shuffled = candidate.model_copy(update={"problems": candidate.problems[::-1]})
    assert compare(ExamPair(incumbent, shuffled), 0, 0.9) == compare(ExamPair(incumbent, candidate), 0, 0.9)
    assert compare(ExamPair(incumbent, shuffled), 0, 0.9).better == 1


def test_the_seed_decides_the_interval_alone() -> None:
    noisy = pair([0, 1, 2, 3, 4, 0, 9] * 11, [1, 7, 1, 9, 3, 8, 2] * 11, k=9)
    first, second = compare(noisy, seed=3, confidence=0.9), compare(noisy, seed=4, confidence=0.9)
    assert first == compare(noisy, seed=3, confidence=0.9)
    assert first.interval != second.interval
    assert first.model_copy(update={"interval": second.interval}) == second


@pytest.mark.parametrize("change", [{"suite_digest": "x"}, {"seed": 1}, {"temperature": 0.0}], ids=str)
def test_reports_of_different_exams_are_not_compared(change: dict[str, Any]) -> None:
    with pytest.raises(StageFailed, match="not of the same exam"):
        ExamPair(report([1, 2]), report([1, 2], **change))
    with pytest.raises(StageFailed, match="not of the same exam"):
        ExamPair(report([1, 2]), report([1, 2], k=5))


def test_incomplete_exams_are_not_compared() -> None:
    whole = report([1, 2])
    lost = whole.problems[0].model_copy(update={"samples": 3})
    cut = whole.model_copy(update={"problems": (lost, whole.problems[1])})
    for incumbent, candidate in ((whole, cut), (cut, whole)):
        with pytest.raises(StageFailed, match="empty or incomplete"):
            ExamPair(incumbent, candidate)
    with pytest.raises(StageFailed, match="empty or incomplete"):
        ExamPair(report([]), report([]))


def test_with_one_answer_to_each_problem_it_is_mcnemars_exact_test() -> None:
    for won, lost in ((9, 2), (3, 3), (0, 5), (30, 11)):
        differences = np.array([1] * won + [-1] * lost + [0] * 20)
        better, worse = sign_flip_p_values(differences)
        assert better == pytest.approx(stats.binomtest(won, won + lost, alternative="greater").pvalue)
        assert worse == pytest.approx(stats.binomtest(won, won + lost, alternative="less").pvalue)


def test_many_comparisons_at_once_give_what_each_gives_alone() -> None:
    generator = np.random.default_rng(0)
    differences = generator.integers(-4, 5, (30, 72))
    differences[3] = 0
    together = sign_flip_p_values(differences)
    for row, better, worse in zip(differences, *together, strict=True):
        assert sign_flip_p_values(row) == pytest.approx((better, worse))


def test_the_p_value_is_as_permutations_estimate_it() -> None:
    differences = np.random.default_rng(1).integers(-3, 5, 72)
    drawn = np.random.default_rng(2).choice([-1, 1], (40_000, 72)) @ np.abs(differences)
    better, worse = sign_flip_p_values(differences)
    assert better == pytest.approx(np.mean(drawn >= differences.sum()), abs=0.005)
    assert worse == pytest.approx(np.mean(drawn <= differences.sum()), abs=0.005)
