"""Whether a candidate becomes the incumbent."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlm_core.config import GateSection
from rlm_core.records import AdapterRef, ExamReport, GateDecision, SuiteComparison
from rlm_core.seeds import derive_seed

_RESAMPLES = 9_999
_ROUNDING = 1e-12


@dataclass(frozen=True)
class ExamPair:
    """Incumbent's and candidate's report on the same suite, with the same problems, samples and seeds."""

    incumbent: ExamReport
    candidate: ExamReport

    def __post_init__(self) -> None:
        a, b = self.incumbent, self.candidate
        same = (a.suite_digest, a.k, a.seed, a.temperature) == (b.suite_digest, b.k, b.seed, b.temperature)
        assert same, f"reports on {a.suite} are not of the same exam"
        assert a.complete and b.complete, f"an exam on {a.suite} is not complete"


@dataclass(frozen=True)
class PastScores:
    """What the ledger knows of earlier accepted scores on the benchmark (pass@1)."""

    best: float | None = None
    ema: float | None = None


def compare(pair: ExamPair, seed: int, confidence: float = 0.9) -> SuiteComparison:
    """Candidate against incumbent, paired over problems.

    The p-value is of a one-sided sign-flip permutation test: were both policies equally good, each problem's
    difference would be as likely with the opposite sign (Good 2005, "Permutation, Parametric and Bootstrap Tests of
    Hypotheses"; exact for few problems, sampled for many). The interval is the percentile bootstrap over problems.
    """
    # Counts, not shares: equal scores must be equal to the last bit, and thirds are not.
    incumbent = np.array([problem.correct for problem in pair.incumbent.problems])
    by_id = {problem.problem_id: problem for problem in pair.candidate.problems}
    candidate = np.array([by_id[problem.problem_id].correct for problem in pair.incumbent.problems])
    differences = candidate - incumbent
    answers = pair.incumbent.k * len(differences)
    (low, high), p_value = (0.0, 0.0), 1.0
    if differences.any():
        (low, high), p_value = _interval(differences, seed, confidence), _p_value(differences, seed)
    return SuiteComparison(
        suite=pair.incumbent.suite,
        suite_digest=pair.incumbent.suite_digest,
        incumbent=int(incumbent.sum()) / answers,
        candidate=int(candidate.sum()) / answers,
        difference=int(differences.sum()) / answers,
        interval=(low / pair.incumbent.k, high / pair.incumbent.k),
        p_value=p_value,
        better=int((differences > 0).sum()),
        worse=int((differences < 0).sum()),
    )


def _p_value(differences: np.ndarray, seed: int) -> float:
    if len(differences) == 1:  # scipy asks for two; the two signs are all that there is
        return 0.5 if differences[0] > 0 else 1.0
    result = stats.permutation_test(
        (differences,),
        lambda sample, axis: np.sum(sample, axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=_RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(derive_seed(seed, "permutation")),
    )
    return float(result.pvalue)


def _interval(differences: np.ndarray, seed: int, confidence: float) -> tuple[float, float]:
    generator = np.random.default_rng(derive_seed(seed, "bootstrap"))
    drawn = generator.integers(0, len(differences), (_RESAMPLES, len(differences)))
    means = differences[drawn].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def decide(
    iteration: int,
    benchmark: ExamPair,
    holdout: ExamPair,
    section: GateSection,
    past: PastScores,
    candidate: AdapterRef,
    incumbent: AdapterRef | None,
    seed: int,
) -> GateDecision:
    """Accept or reject a candidate that sat both exams. The holdout has a veto under every rule."""
    on_benchmark = compare(benchmark, derive_seed(seed, "benchmark"), section.confidence)
    on_holdout = compare(holdout, derive_seed(seed, "holdout"), section.confidence)
    accepted, reason = _apply_rule(on_benchmark, section, past)
    if accepted and on_holdout.difference < -section.holdout_margin - _ROUNDING:
        accepted = False
        reason = (
            f"vetoed by the holdout: {on_holdout.candidate:.3f} against {on_holdout.incumbent:.3f} is worse by more "
            f"than the margin of {section.holdout_margin:g}; else {reason}"
        )
    return GateDecision(
        iteration=iteration,
        accepted=accepted,
        rule=section.rule,
        reason=reason,
        benchmark=on_benchmark,
        holdout=on_holdout,
        candidate=candidate,
        incumbent=incumbent,
    )


def nothing_learnt(iteration: int, section: GateSection, incumbent: AdapterRef | None) -> GateDecision:
    """The decision on an iteration that has no candidate."""
    return GateDecision(
        iteration=iteration,
        accepted=False,
        rule=section.rule,
        reason="no candidate: in every group all rollouts were paid the same, so there was nothing to learn from",
        benchmark=None,
        holdout=None,
        candidate=None,
        incumbent=incumbent,
    )


def _apply_rule(result: SuiteComparison, section: GateSection, past: PastScores) -> tuple[bool, str]:
    score, gain = result.candidate, f"{result.candidate:.3f} against {result.incumbent:.3f}"
    if section.rule == "paired":
        limit = 1 - section.confidence
        sure = result.difference > 0 and result.p_value <= limit
        verb = "is" if sure else "is not"
        return sure, f"{gain} {verb} a gain with p = {result.p_value:.4f}; at most {limit:.3g} is asked for"
    if section.rule == "strict":
        bar = max(result.incumbent, past.best or 0.0)
        return score > bar, f"{score:.3f} {'exceeds' if score > bar else 'does not exceed'} the best score {bar:.3f}"
    if section.rule == "threshold":
        bar = section.threshold
        return score >= bar, f"{score:.3f} {'reaches' if score >= bar else 'does not reach'} the threshold {bar:.3f}"
    bar = result.incumbent if past.ema is None else past.ema
    return score > bar, f"{score:.3f} {'exceeds' if score > bar else 'does not exceed'} the moving average {bar:.3f}"
