"""How much better a rollout was than its group."""

from collections.abc import Sequence

import numpy as np

_MIN_DEVIATION = 1e-6
"""Rewards of a group that are closer than this count as equal."""


def group_advantages(rewards_G: Sequence[float], normalise: bool = True) -> np.ndarray:
    """Group-relative advantages of one problem's rollouts.

        A_i = (r_i - mean(r)) / std(r)

    from GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2). Without `normalise` the division is left out, as Dr.
    GRPO argues (Liu et al. 2025, arXiv 2503.20783): dividing weighs very easy and very hard problems up. `std` is the
    population's. Groups whose rewards are all equal teach nothing and get exactly zero.

    Args:
        rewards_G: the rewards of the group's rollouts.
        normalise: divide by the group's standard deviation.

    Returns:
        float64 [G]; sums to 0.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    centred = rewards - rewards.mean()
    deviation = rewards.std()
    if deviation < _MIN_DEVIATION:
        return np.zeros_like(rewards)
    return centred / deviation if normalise else centred
