"""Two policies compared on one suite: the same problems, the same number of answers, the same seeds."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft

from rlm_core.bootstrap import bootstrap_interval
from rlm_core.errors import StageFailed
from rlm_core.records import ExamReport, SuiteComparison
from rlm_core.seeds import derive_seed

_OF_AN_EXAM = ("suite_digest", "k", "seed", "temperature", "top_p", "max_tokens")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExamPair:
    """Incumbent's and candidate's report on the same suite, with the same problems, samples and seeds.

    Raises:
        StageFailed: an exam is empty or was not judged completely, or they are not of the same exam.
    """

    incumbent: ExamReport
    candidate: ExamReport

    def __post_init__(self) -> None:
        a, b = self.incumbent, self.candidate
        if not (a.complete and b.complete):
            raise StageFailed(f"gate: an exam on {a.suite} is empty or incomplete; nothing is decided on it")
        if why := disagreement(a, b):
            raise StageFailed(
                f"gate: the reports on {a.suite} are not of the same exam ({why}); nothing is decided on them"
            )

    def counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Right answers of incumbent and candidate to each problem, `[P]` and `[P]`, in the incumbent's order."""
        by_id = {problem.problem_id: problem.correct for problem in self.candidate.problems}
        incumbent = [problem.correct for problem in self.incumbent.problems]
        return np.array(incumbent), np.array([by_id[problem.problem_id] for problem in self.incumbent.problems])


def disagreement(a: ExamReport, b: ExamReport) -> str | None:
    """In what two reports show that they are not of the same exam; None where they are of one."""
    for name in _OF_AN_EXAM:
        if (mine := getattr(a, name)) != (other := getattr(b, name)):
            return f"{name} is {mine} in the one, {other} in the other"
    asked, others = ({problem.problem_id for problem in report.problems} for report in (a, b))
    return f"{len(asked ^ others)} problems are in one of them only" if asked != others else None


def compare(pair: ExamPair, seed: int, confidence: float) -> SuiteComparison:
    """Candidate against incumbent, paired over problems.

    The p-values are exact ones of `sign_flip_p_values`. The interval is `bootstrap_interval`'s.

    Args:
        seed: of the bootstrap.
        confidence: of the interval.
    """
    # Counts, not shares: equal scores must be equal to the last bit, and thirds are not.
    incumbent, candidate = pair.counts()
    differences = candidate - incumbent
    answers = pair.incumbent.k * len(differences)
    p_better, p_worse = sign_flip_p_values(differences)
    [low], [high] = bootstrap_interval(differences[:, None], derive_seed(seed, "bootstrap"), confidence)
    return SuiteComparison(
        suite=pair.incumbent.suite,
        suite_digest=pair.incumbent.suite_digest,
        incumbent=int(incumbent.sum()) / answers,
        candidate=int(candidate.sum()) / answers,
        difference=int(differences.sum()) / answers,
        interval=(float(low) / pair.incumbent.k, float(high) / pair.incumbent.k),
        p_value=float(p_better),
        p_worse=float(p_worse),
        better=int((differences > 0).sum()),
        worse=int((differences < 0).sum()),
    )


def sign_flip_p_values(differences: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Exact one-sided p-values of the sign-flip permutation test.

    Were both policies equally good, each problem's difference would be as likely with the opposite sign (Good 2005,
    "Permutation, Parametric and Bootstrap Tests of Hypotheses", ch. 3). With S the sum of the differences d_i under
    random signs, its characteristic function is

        E exp(i t S) = prod_i cos(t d_i)

    and as S is an integer, a discrete Fourier transform of that is its whole distribution. With one answer to each
    problem this is McNemar's exact test.

    Args:
        differences: candidate's right answers less the incumbent's, integers `[..., P]`.

    Returns:
        The chance of a sum at least as large, and of one at most as large, each `[...]`.
    """
    sizes = np.abs(differences)
    largest = int(sizes.sum(axis=-1).max())
    length = fft.next_fast_len(2 * largest + 1, real=True)
    angles = 2 * np.pi * np.arange(length // 2 + 1) / length
    transform = np.ones((*differences.shape[:-1], len(angles)))
    for size in range(1, int(sizes.max()) + 1):
        powers = np.cos(size * angles) ** np.arange(differences.shape[-1] + 1)[:, None]
        transform *= powers[(sizes == size).sum(axis=-1)]
    chances = np.roll(fft.irfft(transform, length), largest, axis=-1)  # of the sums from -largest on
    up_to = np.cumsum(chances, axis=-1)
    observed = (differences.sum(axis=-1) + largest)[..., None]
    at_most = np.take_along_axis(up_to, observed, axis=-1)[..., 0]
    at_least = 1 - at_most + np.take_along_axis(chances, observed, axis=-1)[..., 0]
    smallest = 0.5 ** (sizes > 0).sum(axis=-1)  # one choice of signs gives what was observed; below is rounding
    return np.clip(at_least, smallest, 1.0), np.clip(at_most, smallest, 1.0)
