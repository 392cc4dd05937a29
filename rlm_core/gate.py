"""Whether a candidate becomes the incumbent, goes on probation, or is rejected; docs/gate.md has the numbers."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rlm_core.comparison import ExamPair, compare
from rlm_core.config import GateSection
from rlm_core.errors import StageFailed
from rlm_core.phrases import number_of, p_text
from rlm_core.records import AdapterRef, GateDecision, Lineage, Outcome, PastScores, SuiteComparison
from rlm_core.seeds import derive_seed

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Look:
    """The numbers that a rule goes by: of one candidate, or arrays `[...]` of those of many."""

    incumbent: Any
    candidate: Any
    """Scores on the benchmark."""
    difference: Any
    p_better: Any
    p_worse: Any
    holdout_difference: Any
    waited: Any = 0
    tries: Any = 0
    best: Any = np.nan
    ema: Any = np.nan
    """Not a number where there is none yet."""


def outcomes(look: Look, section: GateSection) -> npt.NDArray[np.str_]:
    """The outcome by the configured rule, `[...]`. The simulation of docs/gate.md calls this too."""
    vetoed = look.holdout_difference < -section.holdout_margin - _ROUNDING
    if section.rule != "paired":
        bar = score_bar(look, section)
        reached = look.candidate >= bar if section.rule == "threshold" else look.candidate > bar
        return np.where(reached & ~np.asarray(vetoed), "accepted", "rejected")
    proved = (look.p_better <= section.level(look.tries)) & (
        look.difference >= max(section.min_gain, _ROUNDING) - _ROUNDING
    )
    worse = look.p_worse <= 1 - section.worse_confidence
    return np.select(
        [
            np.asarray(worse | proved & vetoed),
            np.asarray(proved),
            np.asarray(look.waited < section.patience),
        ],
        ["rejected", "accepted", "probation"],
        "rejected",
    )


def score_bar(look: Look, section: GateSection) -> Any:
    """The score that the candidate has to exceed, under `threshold` to reach, `[...]`."""
    if section.rule == "threshold":
        return section.threshold
    if section.rule == "strict":
        return np.fmax(look.incumbent, look.best)
    return np.where(np.isnan(look.ema), look.incumbent, look.ema)


def settled(benchmark: ExamPair, section: GateSection, past: PastScores, lineage: Lineage) -> bool:
    """Whether the benchmark alone settles what becomes of a candidate: it is no accept, which is all that the holdout
    can veto. So the holdout need not be sat."""
    look = _look(compare(benchmark, 0, section.confidence), None, past, lineage)
    return bool(outcomes(look, section).item() != "accepted")


def decide(
    iteration: int,
    benchmark: ExamPair,
    holdout: ExamPair | None,
    section: GateSection,
    past: PastScores,
    candidate: AdapterRef,
    lineage: Lineage,
    seed: int,
) -> GateDecision:
    """Decide about a candidate that sat the exams. Under every rule the holdout can veto an accept.

    Args:
        holdout: None where the benchmark has `settled` it.

    Raises:
        StageFailed: the holdout is missing, and would have had a say.
    """
    on_benchmark = compare(benchmark, derive_seed(seed, "benchmark"), section.confidence)
    on_holdout = None
    if holdout is not None:
        on_holdout = compare(holdout, derive_seed(seed, "holdout"), section.confidence)
    look = _look(on_benchmark, on_holdout, past, lineage)
    outcome = cast(Outcome, outcomes(look, section).item())
    if on_holdout is None and outcome == "accepted":
        raise StageFailed("gate: the candidate's exam on the holdout is missing; nothing is decided")
    return GateDecision(
        iteration=iteration,
        outcome=outcome,
        rule=section.rule,
        reason=_reason(outcome, look, on_holdout, section),
        benchmark=on_benchmark,
        holdout=on_holdout,
        candidate=candidate,
        incumbent=lineage.incumbent,
        learner=lineage.learner,
        waited=lineage.waited,
        tries=lineage.tries,
    )


def nothing_learnt(iteration: int, section: GateSection, lineage: Lineage) -> GateDecision:
    """The decision on an iteration that has no candidate."""
    return GateDecision(
        iteration=iteration,
        outcome="rejected",
        rule=section.rule,
        reason="no candidate: in every group all rollouts were paid the same, so there was nothing to learn from",
        benchmark=None,
        holdout=None,
        candidate=None,
        incumbent=lineage.incumbent,
        learner=lineage.learner,
        waited=lineage.waited,
        tries=lineage.tries,
    )


def _look(benchmark: SuiteComparison, holdout: SuiteComparison | None, past: PastScores, lineage: Lineage) -> Look:
    return Look(
        incumbent=benchmark.incumbent,
        candidate=benchmark.candidate,
        difference=benchmark.difference,
        p_better=benchmark.p_value,
        p_worse=benchmark.p_worse,
        holdout_difference=holdout.difference if holdout else 0.0,
        waited=lineage.waited,
        tries=lineage.tries,
        best=np.nan if past.best is None else past.best,
        ema=np.nan if past.ema is None else past.ema,
    )


def _reason(outcome: Outcome, look: Look, holdout: SuiteComparison | None, section: GateSection) -> str:
    found = _found(outcome, look, section)
    without = outcomes(replace(look, holdout_difference=0.0), section).item()
    if holdout and outcome != without:
        return (
            f"vetoed by the holdout: {holdout.candidate:.3f} against {holdout.incumbent:.3f} is worse by more "
            f"than the margin of {section.holdout_margin:g}; else {found}"
        )
    return found


def _found(outcome: Outcome, look: Look, section: GateSection) -> str:
    if section.rule != "paired":
        return _found_by_score(look, section)
    gain = f"{look.candidate:.3f} against {look.incumbent:.3f}"
    asked = f"p {p_text(look.p_better, '= ')}; at most {section.level(look.tries):.3g} is asked for"
    if look.p_worse <= 1 - section.worse_confidence:
        allowed = f"{1 - section.worse_confidence:.3g}"
        return f"{gain} is worse with p {p_text(look.p_worse, '= ')}; above {allowed} it would go on probation"
    if look.p_better <= section.level(look.tries):
        if look.difference >= section.min_gain - _ROUNDING:
            return f"{gain} is a gain with {asked}"
        asked += f", and a gain of {section.min_gain:g}"
    if outcome == "probation":
        return (
            f"{gain} is not yet a sure gain with {asked}; "
            f"iteration {look.waited + 1} of {section.patience} on probation"
        )
    found = f"{gain} is not a gain with {asked}"
    patience = (
        f"after {number_of(look.waited, 'iteration')} on probation" if section.patience else "and there is no probation"
    )
    return f"{found}, {patience}"


def _found_by_score(look: Look, section: GateSection) -> str:
    score, bar = look.candidate, float(score_bar(look, section))
    if section.rule == "threshold":
        return f"{score:.3f} {'reaches' if score >= bar else 'does not reach'} the threshold {bar:.3f}"
    name = "best score" if section.rule == "strict" else "moving average"
    return f"{score:.3f} {'exceeds' if score > bar else 'does not exceed'} the {name} {bar:.3f}"
