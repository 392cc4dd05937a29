"""How sure a mean over a suite's problems is.

Axes: P problems, K means side by side.
"""

import numpy as np
import numpy.typing as npt

_RESAMPLES = 9_999
_CHUNK = 1_000_000
"""Draws in memory at once."""

Floats = npt.NDArray[np.float64]


def bootstrap_interval(values_P_K: npt.NDArray[np.generic], seed: int, confidence: float) -> tuple[Floats, Floats]:
    """The percentile interval of the mean over P (Efron and Tibshirani 1993, ch. 13): its lower and upper ends `[K]`.

    It tells how the means would vary with other problems of the same kind and other answers together.
    """
    generator = np.random.default_rng(seed)
    count = len(values_P_K)
    at_once = max(1, _CHUNK // values_P_K.size)
    means = [
        values_P_K[generator.integers(0, count, (min(at_once, _RESAMPLES - done), count))].mean(axis=1)
        for done in range(0, _RESAMPLES, at_once)
    ]
    tail = (1 - confidence) / 2
    low_K, high_K = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return low_K, high_K
