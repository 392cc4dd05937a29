"""How much better a rollout was than its group. Axes: G rollouts of one problem.

All advantages are float64 [G] and sum to 0. A group whose rewards are all equal teaches nothing and gets exactly zero.
"""

from collections.abc import Sequence

import numpy as np

_MIN_DEVIATION = 1e-6
"""Rewards of a group that are closer than this count as equal."""


def have_spread(rewards_G: Sequence[float]) -> bool:
    """Whether some of the group's rewards differ."""
    return bool(np.std(rewards_G) >= _MIN_DEVIATION)


def group_normalised(rewards_G: Sequence[float]) -> np.ndarray:
    """Distance from the group's mean in standard deviations.

        A_i = (r_i - mean(r)) / std(r)

    GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2). `std` is the population's.
    """
    return centred(rewards_G) / np.std(rewards_G) if have_spread(rewards_G) else np.zeros(len(rewards_G))


def centred(rewards_G: Sequence[float]) -> np.ndarray:
    """Distance from the group's mean.

        A_i = r_i - mean(r)

    Dr. GRPO (Liu et al. 2025, arXiv 2503.20783, section 3.2): dividing by the deviation, as GRPO does, weighs problems
    up that are nearly always or nearly never solved. Also REINFORCE (Williams 1992) with the group's mean as baseline.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    return rewards - rewards.mean() if have_spread(rewards_G) else np.zeros_like(rewards)


def leave_one_out(rewards_G: Sequence[float]) -> np.ndarray:
    """Distance from the mean of the group's other rollouts.

        A_i = r_i - 1/(G-1) sum_{j != i} r_j = G/(G-1) (r_i - mean(r))

    RLOO (Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!"; Ahmadian et al. 2024, arXiv
    2402.14740). A baseline that the rollout itself has no part in leaves the gradient unbiased; against `centred` it
    differs by a factor that is the same for groups of the same size.
    """
    group = len(rewards_G)
    return centred(rewards_G) * (group / max(group - 1, 1))


def overlong_penalties(lengths_G: Sequence[int], max_tokens: int, buffer: int) -> np.ndarray:
    """What answers that come near the limit on tokens lose: from 0 at the buffer's beginning to -1 at the limit.

        R_length(y) = 0                                      if |y| <= L_max - L_cache
                      ((L_max - L_cache) - |y|) / L_cache    if L_max - L_cache < |y| <= L_max

    DAPO (Yu et al. 2025, arXiv 2503.14476, equation 13), whose third case, an answer beyond the limit, does not arise
    here: the sampler cuts it off at the limit, where it loses the whole 1.

    Args:
        lengths_G: answers' tokens.
        max_tokens: L_max, the limit that they were sampled with.
        buffer: L_cache, tokens before the limit in which the penalty grows.

    Returns:
        float64 [G], between -1 and 0.
    """
    into_buffer = np.asarray(lengths_G) - (max_tokens - buffer)
    return -np.clip(into_buffer / buffer, 0.0, 1.0)
