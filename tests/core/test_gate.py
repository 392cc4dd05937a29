"""The gate's numbers against hand and slow references, and each rule's accept and reject."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlm_core.config import GateSection
from rlm_core.gate import ExamPair, PastScores, compare, decide, nothing_learnt
from rlm_core.records import AdapterRef, ExamReport, GateDecision, ProblemScore

CANDIDATE = AdapterRef(path="runs/0002/adapter", sha256="c" * 64)
INCUMBENT = AdapterRef(path="runs/0001/adapter", sha256="a" * 64)


def report(correct: Sequence[int], k: int = 4, **changes: Any) -> ExamReport:
    """A complete report with so many right answers of `k` on each problem."""
    scores = [
        ProblemScore(problem_id=f"p{i}", entry_point=f"f{i}", samples=k, correct=count)
        for i, count in enumerate(correct)
    ]
    fields: dict[str, Any] = {
        "suite": "suite",
        "suite_digest": "digest",
        "policy": "base",
        "base_model": "m",
        "k": k,
        "temperature": 0.7,
        "seed": 0,
        "pass_at": {},
        "problems": tuple(scores),
        "tokens": 1,
        "truncated_share": 0.0,
        "infrastructure_faults": 0,
        "duration_s": 1.0,
    }
    return ExamReport(**(fields | changes))


def pair(incumbent: Sequence[int], candidate: Sequence[int], k: int = 4) -> ExamPair:
    return ExamPair(report(incumbent, k), report(candidate, k))


def gain(of_4: int) -> ExamPair:
    """On 20 problems, incumbent 2 of 4 on each and candidate 2 + `of_4`."""
    return pair([2] * 20, [2 + of_4] * 20)


def decision(
    rule: str = "paired",
    benchmark: ExamPair | None = None,
    holdout: ExamPair | None = None,
    past: PastScores | None = None,
    seed: int = 0,
    **settings: Any,
) -> GateDecision:
    section = GateSection.parse({"rule": rule, **settings})
    return decide(
        7, benchmark or gain(1), holdout or gain(0), section, past or PastScores(), CANDIDATE, INCUMBENT, seed
    )


def sign_flip_p_value(differences: Sequence[int]) -> float:
    """Share of all ways to choose the signs that give at least the observed sum."""
    observed = sum(differences)
    sums = [
        sum(sign * d for sign, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed for total in sums) / len(sums)


# -------------------------------------------------------------------------------------------------------- comparison


def test_equal_policies_have_no_difference_and_p_1() -> None:
    result = compare(gain(0), seed=0)
    assert (result.incumbent, result.candidate, result.difference) == (0.5, 0.5, 0.0)
    assert (result.p_value, result.interval, result.better, result.worse) == (1.0, (0.0, 0.0), 0, 0)


def test_a_gain_on_every_problem_is_sure() -> None:
    few = compare(pair([0] * 10, [4] * 10), seed=0)
    assert (few.difference, few.interval, few.better, few.worse) == (1.0, (1.0, 1.0), 10, 0)
    assert few.p_value == pytest.approx(1 / 1024)  # one of 2^10 choices of signs
    many = compare(pair([0] * 40, [4] * 40), seed=0)
    assert many.p_value == pytest.approx(1 / 10_000)  # none of 9,999 drawn choices, and the observed one


def test_a_loss_on_every_problem_is_no_gain() -> None:
    result = compare(pair([4] * 10, [0] * 10), seed=0)
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
    assert compare(pair(incumbent, candidate), seed=0).p_value == pytest.approx(p_value)


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8), seed=st.integers(0, 99)
)
@example(counts=[(1, 4), (3, 0)], seed=0)  # in fifths, 3 - 3 is not quite 0 in floating point
def test_the_p_value_for_few_problems_is_exact(counts: list[tuple[int, int]], seed: int) -> None:
    incumbent, candidate = zip(*counts, strict=True)
    result = compare(pair(incumbent, candidate, k=5), seed)
    assert result.p_value == pytest.approx(sign_flip_p_value([b - a for a, b in counts]))
    assert result.difference == pytest.approx(sum(b - a for a, b in counts) / (5 * len(counts)))


def test_a_suite_of_one_problem_can_be_compared() -> None:
    assert compare(pair([0], [4]), seed=0).p_value == pytest.approx(0.5)
    assert compare(pair([4], [0]), seed=0).p_value == pytest.approx(1.0)


def test_the_interval_holds_the_difference_and_narrows_with_less_confidence() -> None:
    noisy = pair([2] * 20, [4] * 12 + [1] * 8)
    wide, narrow = (compare(noisy, seed=0, confidence=confidence) for confidence in (0.99, 0.6))
    assert wide.difference == narrow.difference == pytest.approx((12 * 0.5 - 8 * 0.25) / 20)
    assert wide.interval[0] < narrow.interval[0] < wide.difference < narrow.interval[1] < wide.interval[1]


def test_problems_are_paired_by_id_and_not_by_place() -> None:
    incumbent, candidate = report([0, 4, 2]), report([1, 4, 2])
    shuffled = candidate.model_copy(update={"problems": candidate.problems[::-1]})
    assert compare(ExamPair(incumbent, shuffled), 0) == compare(ExamPair(incumbent, candidate), 0)
    assert compare(ExamPair(incumbent, shuffled), 0).better == 1


def test_the_same_seed_gives_the_same_numbers() -> None:
    noisy = pair([0, 1, 2, 3, 4] * 8, [1, 1, 1, 4, 3] * 8)
    assert compare(noisy, seed=3) == compare(noisy, seed=3)
    assert compare(noisy, seed=3).p_value != compare(noisy, seed=4).p_value


@pytest.mark.parametrize("change", [{"suite_digest": "x"}, {"seed": 1}, {"temperature": 0.0}], ids=str)
def test_reports_of_different_exams_are_not_compared(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="not of the same exam"):
        ExamPair(report([1, 2]), report([1, 2], **change))
    with pytest.raises(AssertionError, match="not of the same exam"):
        ExamPair(report([1, 2]), report([1, 2], k=5))


def test_incomplete_exams_are_not_compared() -> None:
    whole = report([1, 2])
    lost = whole.problems[0].model_copy(update={"samples": 3})
    cut = whole.model_copy(update={"problems": (lost, whole.problems[1])})
    for incumbent, candidate in ((whole, cut), (cut, whole)):
        with pytest.raises(AssertionError, match="not complete"):
            ExamPair(incumbent, candidate)
    with pytest.raises(AssertionError, match="not complete"):
        ExamPair(report([]), report([]))


# ------------------------------------------------------------------------------------------------------------- rules


def test_paired_accepts_a_sure_gain() -> None:
    made = decision("paired", gain(1))
    assert made.accepted
    assert made.reason == "0.750 against 0.500 is a gain with p = 0.0001; at most 0.1 is asked for"


@pytest.mark.parametrize(
    "benchmark",
    [
        gain(0),
        gain(-1),
        pair([2] * 20, [3] * 11 + [1] * 9),  # 11 against 9
        pair([2] * 20, [2] * 18 + [3] * 2),  # p = 1/4
    ],
    ids=["equal", "worse", "noise", "too-few"],
)
def test_paired_rejects_what_is_not_a_sure_gain(benchmark: ExamPair) -> None:
    made = decision("paired", benchmark)
    assert not made.accepted
    assert "is not a gain" in made.reason


def test_paired_accepts_at_exactly_the_asked_for_confidence() -> None:
    three = pair([0, 0, 0], [4, 4, 4])  # p = 1/8
    assert decision("paired", three, confidence=0.875).accepted
    assert not decision("paired", three, confidence=0.876).accepted


@pytest.mark.parametrize(
    ("of_4", "best", "accepted"),
    [
        (1, None, True),
        (0, None, False),
        (-1, None, False),
        (1, 0.5, True),
        (1, 0.75, False),
        (2, 0.75, True),
        (1, 0.2, True),
    ],
)
def test_strict_asks_for_more_than_the_incumbent_and_the_best(of_4: int, best: float | None, accepted: bool) -> None:
    made = decision("strict", gain(of_4), past=PastScores(best=best))
    assert made.accepted is accepted
    assert ("does not exceed" in made.reason) is not accepted
    assert f"the best score {max(0.5, best or 0):.3f}" in made.reason


@pytest.mark.parametrize(("threshold", "accepted"), [(0.5, True), (0.75, True), (0.76, False)])
def test_threshold_asks_for_a_score(threshold: float, accepted: bool) -> None:
    made = decision("threshold", gain(1), threshold=threshold)
    assert made.accepted is accepted
    assert ("does not reach" in made.reason) is not accepted


@pytest.mark.parametrize(("ema", "accepted"), [(None, True), (0.7, True), (0.75, False), (0.8, False), (0.0, True)])
def test_ema_asks_for_more_than_the_moving_average(ema: float | None, accepted: bool) -> None:
    made = decision("ema", gain(1), past=PastScores(best=0.9, ema=ema))
    assert made.accepted is accepted
    assert f"the moving average {0.5 if ema is None else ema:.3f}" in made.reason


def test_ema_starts_from_the_incumbent() -> None:
    assert not decision("ema", gain(0)).accepted


@pytest.mark.parametrize("rule", ["strict", "ema"])
def test_the_same_score_in_another_order_is_no_gain(rule: str) -> None:
    # (0.1 + 0.2 + 0.3) / 3 is more than (0.3 + 0.2 + 0.1) / 3 in floating point
    for incumbent, candidate in (([1, 2, 3], [3, 2, 1]), ([3, 2, 1], [1, 2, 3])):
        assert not decision(rule, pair(incumbent, candidate, k=10)).accepted


# ----------------------------------------------------------------------------------------------------------- holdout


@pytest.mark.parametrize(
    ("rule", "settings"), [("paired", {}), ("strict", {}), ("threshold", {"threshold": 0.1}), ("ema", {})]
)
def test_the_holdout_has_a_veto_under_every_rule(rule: str, settings: dict[str, Any]) -> None:
    assert decision(rule, gain(1), gain(0), **settings).accepted
    made = decision(rule, gain(1), gain(-1), **settings)
    assert not made.accepted
    assert made.reason.startswith(
        "vetoed by the holdout: 0.250 against 0.500 is worse by more than the margin of 0.05; else 0.750 "
    )


@pytest.mark.parametrize(
    ("holdout", "margin", "accepted"),
    [
        (gain(-1), 0.25, True),
        (gain(-1), 0.24, False),
        (gain(0), 0.0, True),
        (gain(1), 0.0, True),
        (pair([4] * 20, [4] * 19 + [3]), 0.0, False),
        (pair([4] * 20, [4] * 19 + [0]), 0.05, True),  # one of 20 problems lost: exactly 0.05
        (pair([8, 5], [7, 5], k=10), 0.05, True),  # one of 20 answers lost: exactly 0.05
    ],
)
def test_the_holdout_may_lose_up_to_the_margin(holdout: ExamPair, margin: float, accepted: bool) -> None:
    assert decision("paired", gain(1), holdout, holdout_margin=margin).accepted is accepted


def test_a_good_holdout_does_not_make_up_for_the_benchmark() -> None:
    assert not decision("paired", gain(0), gain(2)).accepted


# --------------------------------------------------------------------------------------------------------- decisions


def test_a_decision_carries_the_numbers_that_it_rests_on() -> None:
    made = decision("strict", gain(1), pair([2] * 20, [2] * 19 + [1]))
    assert (made.iteration, made.rule, made.candidate, made.incumbent) == (7, "strict", CANDIDATE, INCUMBENT)
    assert made.benchmark is not None
    assert made.holdout is not None
    assert (made.benchmark.incumbent, made.benchmark.candidate, made.benchmark.better) == (0.5, 0.75, 20)
    assert (made.holdout.difference, made.holdout.better, made.holdout.worse) == (-0.0125, 0, 1)


def test_a_decision_depends_on_reports_and_seed_alone() -> None:
    noisy = pair([0, 1, 2, 3, 4] * 8, [1, 1, 1, 4, 3] * 8)
    assert decision(benchmark=noisy, seed=1) == decision(benchmark=noisy, seed=1)


def test_without_a_candidate_the_incumbent_stays() -> None:
    made = nothing_learnt(7, GateSection(rule="ema"), INCUMBENT)
    assert (made.accepted, made.iteration, made.rule, made.incumbent) == (False, 7, "ema", INCUMBENT)
    assert (made.candidate, made.benchmark, made.holdout) == (None, None, None)
    assert made.reason.startswith("no candidate: ")
