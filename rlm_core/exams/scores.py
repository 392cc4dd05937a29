"""pass@k: the unbiased estimate for a problem, its mean over a suite, and how sure that is.

Axes: P problems, K values of k.
"""

import math
from collections.abc import Sequence

import numpy as np

from rlm_core.bootstrap import bootstrap_interval
from rlm_core.records import ProblemScore
from rlm_core.seeds import derive_seed

CONFIDENCE = 0.95
_CUSTOMARY = (10, 100)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k answers is right.

        pass@k = 1 - C(n - c, k) / C(n, k)

    Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1.

    Args:
        samples: n, answers that were judged, at least k.
        correct: c, those that were right.
    """
    assert 0 <= correct <= samples and 1 <= k <= samples
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def ks_for(samples: int) -> list[int]:
    """The k for which a report gives pass@k: powers of two, 10, 100, and the number of samples."""
    powers = [2**power for power in range(samples.bit_length())]
    return sorted({k for k in (*powers, *_CUSTOMARY, samples) if k <= samples})


def mean_pass_at(
    scores: Sequence[ProblemScore], samples: int, seed: int
) -> tuple[dict[int, float], dict[int, tuple[float, float]]]:
    """Mean pass@k over the problems all of whose samples were judged, for each of `ks_for`, and its interval.

    The interval is `bootstrap_interval`'s with CONFIDENCE.

    Returns:
        pass@k by k, and intervals by k; both empty when no problem is complete.
    """
    complete = [score for score in scores if score.samples == samples]
    ks = ks_for(samples)
    if not complete:
        return {}, {}
    passed_P_K = np.array([[pass_at_k(samples, score.correct, k) for k in ks] for score in complete])
    ends = bootstrap_interval(passed_P_K, derive_seed(seed, "pass_at"), CONFIDENCE)
    low_K, high_K = (np.clip(end_K, 0.0, 1.0) for end_K in ends)
    # Summed in order, as a person would check it; NumPy adds pairwise, which differs in the last bit.
    means = {k: sum(column) / len(complete) for k, column in zip(ks, passed_P_K.T.tolist(), strict=True)}
    return means, {k: (float(low), float(high)) for k, low, high in zip(ks, low_K, high_K, strict=True)}
