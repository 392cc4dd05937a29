"""Policy-gradient losses on token log-probabilities. Axes: B rollouts, T answer tokens.

All log-probabilities are float32 [B, T], in nats, at the sampling temperature. `mask` is 1.0 on the answer's tokens
(the stop token among them) and 0.0 on padding.
"""

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class ClipRange:
    """The ratio of new to old probability may move in [1 - low, 1 + high] before its gradient is cut."""

    low: float
    high: float


def grpo_token_losses(
    logprobs: mx.array, old_logprobs: mx.array, advantages: mx.array, clip: ClipRange
) -> tuple[mx.array, mx.array]:
    """The clipped surrogate of every token.

        rho = exp(logp - logp_old)
        loss = -min(rho * A, clip(rho, 1 - low, 1 + high) * A)

    PPO's objective (Schulman et al. 2017, arXiv 1707.06347, equation 7) with GRPO's advantages (Shao et al. 2024, arXiv
    2402.03300, equation 3) and a higher upper bound (DAPO, Yu et al. 2025, arXiv 2503.14476, equation 8).

    Args:
        logprobs: of the policy being trained; differentiable.
        old_logprobs: of the policy before training, by the same forward pass as `logprobs`.
        advantages: float32 [B].
        clip: bounds of the ratio.

    Returns:
        The losses [B, T], and float32 [B, T] that is 1.0 where the clipped branch was taken.
    """
    ratio = mx.exp(logprobs - old_logprobs)
    advantage = advantages[:, None]
    free = ratio * advantage
    clipped = mx.clip(ratio, 1 - clip.low, 1 + clip.high) * advantage
    return -mx.minimum(free, clipped), (clipped < free).astype(mx.float32)


def k3_divergence(logprobs: mx.array, reference_logprobs: mx.array) -> mx.array:
    """Unbiased, never negative estimate of KL(policy || reference) at each sampled token, [B, T].

        k3 = exp(ref - logp) - (ref - logp) - 1

    Schulman 2020, "Approximating KL divergence" (joschu.net/blog/kl-approx.html); used by GRPO (equation 4).
    """
    difference = reference_logprobs - logprobs
    return mx.exp(difference) - difference - 1


def importance_weights(old_logprobs: mx.array, behaviour_logprobs: mx.array, cap: float) -> mx.array:
    """Truncated importance weights between the trainer's and the sampler's view of the same policy, [B, T].

        w = min(exp(logp_old - logp_behaviour), cap)

    The two differ by rounding and by kernels; the correction keeps the estimate honest (Yao et al. 2025, "Your
    efficient RL framework secretly brings you off-policy RL training").
    """
    return mx.minimum(mx.exp(old_logprobs - behaviour_logprobs), cap)


def token_mean(losses: mx.array, mask: mx.array, tokens: int) -> mx.array:
    """Sum over the masked tokens divided by `tokens`, the number in the whole minibatch.

    Every token weighs the same whatever the length of its answer (DAPO, equation 8), and micro-batches of any size add
    up to the minibatch's gradient.
    """
    return mx.sum(losses * mask) / tokens
