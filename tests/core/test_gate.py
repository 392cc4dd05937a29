"""Each rule's outcomes and reasons."""

import itertools
import math
from typing import Any

import pytest

from rlm_core.comparison import ExamPair
from rlm_core.config import GateSection
from rlm_core.errors import StageFailed
from rlm_core.gate import decide, nothing_learnt, settled
from rlm_core.records import AdapterRef, GateDecision, Lineage, PastScores
from tests.samples.exam_reports import pair

CANDIDATE = AdapterRef(path="runs/0002/adapter", sha256="c" * 64)
INCUMBENT = AdapterRef(path="runs/0001/adapter", sha256="a" * 64)
ON_PROBATION = AdapterRef(path="runs/0006/adapter", sha256="b" * 64)


def gain(of_4: int) -> ExamPair:
    """On 20 problems, incumbent 2 of 4 on each and candidate 2 + `of_4`."""
    return pair([2] * 20, [2 + of_4] * 20)


def decision(
    rule: str = "paired",
    benchmark: ExamPair | None = None,
    holdout: ExamPair | None = None,
    past: PastScores | None = None,
    seed: int = 0,
    waited: int = 0,
    tries: int = 0,
    **settings: Any,
) -> GateDecision:
    section = GateSection.parse({"rule": rule, **settings})
    lineage = Lineage(INCUMBENT, ON_PROBATION if waited else INCUMBENT, waited, tries)
    return decide(7, benchmark or gain(1), holdout or gain(0), section, past or PastScores(), CANDIDATE, lineage, seed)


# ------------------------------------------------------------------------------------------------------------- rules


def test_paired_accepts_a_sure_gain() -> None:
    made = decision("paired", gain(1))
    assert made.outcome == "accepted"
    assert made.reason == "0.750 against 0.500 is a gain with p < 0.0001; at most 0.0329 is asked for"


NOISE = pair([2] * 20, [3] * 11 + [1] * 9)  # 11 against 9
TOO_FEW = pair([2] * 20, [2] * 18 + [3] * 2)  # p = 1/4


@pytest.mark.parametrize("benchmark", [gain(0), NOISE, TOO_FEW], ids=["equal", "noise", "too-few"])
def test_paired_lets_training_go_on_from_what_is_neither_better_nor_worse(benchmark: ExamPair) -> None:
    made = decision("paired", benchmark)
    assert (made.outcome, made.accepted) == ("probation", False)
    assert "is not yet a sure gain" in made.reason
    assert made.reason.endswith("iteration 1 of 6 on probation")


def test_probation_ends_with_patience() -> None:
    assert decision("paired", NOISE, waited=5).outcome == "probation"
    ended = decision("paired", NOISE, waited=6)
    assert ended.outcome == "rejected"
    assert ended.reason.endswith("after 6 iterations on probation")
    assert decision("paired", gain(1), waited=6).outcome == "accepted"
    without = decision("paired", NOISE, patience=0)
    assert without.outcome == "rejected"
    assert without.reason.endswith("and there is no probation")


def test_paired_rejects_what_is_worse_at_once() -> None:
    made = decision("paired", gain(-1))
    assert made.outcome == "rejected"
    assert made.reason == "0.250 against 0.500 is worse with p < 0.0001; above 0.1 it would go on probation"
    three_lost = pair([2] * 20, [2] * 17 + [1] * 3)  # p = 1/8
    assert decision("paired", three_lost).outcome == "probation"
    assert decision("paired", three_lost, worse_confidence=0.87).outcome == "rejected"


def test_the_p_value_that_is_asked_for_falls_with_the_tries_and_any_sum_over_the_horizon_is_below_the_level() -> None:
    section = GateSection(confidence=0.9, horizon=20)
    assert section.level(0) == pytest.approx(0.05 * (1 / 20 + 6 / math.pi**2))
    assert section.level(3) == pytest.approx(0.05 * (1 / 20 + 6 / math.pi**2 / 16))
    for horizon in (1, 20, 100):
        spent = [GateSection(confidence=0.95, horizon=horizon).level(tries) for tries in range(3 * horizon)]
        assert spent == sorted(spent, reverse=True)
        assert all(sum(spent[first : first + horizon]) < 0.05 for first in range(2 * horizon))


def test_whatever_true_gains_come_between_the_levels_of_all_other_tries_stay_below_the_level_together() -> None:
    section = GateSection(confidence=0.9, horizon=10)
    for gains in itertools.product([True, False], repeat=10):
        tries, spent = 0, 0.0
        for is_gain in gains:
            if not is_gain:
                spent += section.level(tries)
                tries += 1  # as the ledger counts; a gain is accepted and leaves the count
        assert spent < 0.1


def test_a_later_try_needs_a_surer_gain() -> None:
    six = pair([0] * 6, [4] * 6)  # p = 1/64
    assert decision("paired", six).outcome == "accepted"
    assert decision("paired", six, tries=1).outcome == "probation"
    assert decision("paired", six, tries=1, horizon=2).outcome == "accepted"


def test_a_sure_gain_that_is_too_small_is_not_accepted() -> None:
    small = pair([2] * 200, [3] * 20 + [2] * 180)  # 0.025, p = 2 ** -20
    assert decision("paired", small, min_gain=0.025).outcome == "accepted"
    made = decision("paired", small, min_gain=0.026)
    assert made.outcome == "probation"
    assert "and a gain of 0.026" in made.reason


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


def test_a_rejection_for_lack_of_patience_does_not_speak_of_the_holdout() -> None:
    late = decision("paired", NOISE, gain(-1), waited=6)
    assert late.outcome == "rejected"
    assert "holdout" not in late.reason
    assert late.reason.endswith(", after 6 iterations on probation")


def test_a_good_holdout_does_not_make_up_for_the_benchmark() -> None:
    assert not decision("paired", gain(0), gain(2)).accepted


@pytest.mark.parametrize("holdout", [gain(1), gain(0), gain(-1)])
def test_the_holdout_has_no_say_in_a_probation(holdout: ExamPair) -> None:
    assert decision("paired", NOISE, holdout, waited=2).outcome == "probation"


@pytest.mark.parametrize(
    ("rule", "benchmark", "waited", "is_settled"),
    [
        ("paired", gain(-1), 0, True),
        ("paired", gain(1), 0, False),
        ("paired", gain(0), 0, True),
        ("paired", gain(0), 6, True),
        ("strict", gain(0), 0, True),
        ("ema", gain(1), 0, False),
        ("threshold", gain(-1), 0, True),
    ],
)
def test_the_benchmark_settles_all_but_an_accept(rule: str, benchmark: ExamPair, waited: int, is_settled: bool) -> None:
    section, lineage = GateSection.parse({"rule": rule}), Lineage(INCUMBENT, ON_PROBATION, waited, 3)
    assert settled(benchmark, section, PastScores(), lineage) is is_settled
    for holdout in (gain(-1), gain(0), gain(1)):
        whole = decide(7, benchmark, holdout, section, PastScores(), CANDIDATE, lineage, 0)
        assert not whole.accepted or not is_settled
    if is_settled:
        made = decide(7, benchmark, None, section, PastScores(), CANDIDATE, lineage, 0)
        assert (made.accepted, made.holdout, made.candidate) == (False, None, CANDIDATE)
        assert made.reason == decide(7, benchmark, gain(0), section, PastScores(), CANDIDATE, lineage, 0).reason
    else:
        with pytest.raises(StageFailed, match="holdout is missing; nothing is decided"):
            decide(7, benchmark, None, section, PastScores(), CANDIDATE, lineage, 0)


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
    made = nothing_learnt(7, GateSection(rule="ema"), Lineage(INCUMBENT, ON_PROBATION, 2))
    assert (made.accepted, made.iteration, made.rule, made.incumbent) == (False, 7, "ema", INCUMBENT)
    assert (made.candidate, made.benchmark, made.holdout) == (None, None, None)
    assert (made.learner, made.waited) == (ON_PROBATION, 2)
    assert made.reason.startswith("no candidate: ")
