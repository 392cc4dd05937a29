"""Policy-gradient losses on token log-probabilities. Axes: B rollouts, T answer tokens.

All log-probabilities are float32 [B, T], in nats, at the sampling temperature. `mask` is 1.0 on the answer's tokens
(the stop token among them) and 0.0 on padding. Which losses make up which method is in `methods.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class ClipRange:
    """The ratio of new to old probability counts within [1 - low, 1 + high]. low = 1 means no lower bound."""

    low: float
    high: float


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers as two policies see them, and what they were worth."""

    logprobs: mx.array
    """Of the policy being trained; differentiable."""
    old_logprobs: mx.array
    """Of the policy before training, by the same forward pass as `logprobs`."""
    mask: mx.array
    advantages: mx.array
    """float32 [B]"""


@dataclass(frozen=True)
class Divisors:
    """What a minibatch's losses are divided by: known beforehand, so that micro-batches of any size add up to it."""

    tokens: int
    """Answer tokens in the whole minibatch."""
    rollouts: int
    """Rollouts in the whole minibatch."""
    max_tokens: int
    """The limit on an answer's tokens: the same for every minibatch."""


TokenLosses = Callable[[ScoredAnswers, ClipRange | None], tuple[mx.array, mx.array]]
"""The losses of all tokens, [B, T], and float32 [B, T] that is 1.0 where the clip had an effect."""

Aggregate = Callable[[mx.array, mx.array, Divisors], mx.array]
"""From (losses [B, T], mask [B, T], divisors) to the micro-batch's part of the minibatch's loss, a scalar."""


# ------------------------------------------------------------------------------------------------------------- losses


def clipped_surrogate(scored: ScoredAnswers, clip: ClipRange | None) -> tuple[mx.array, mx.array]:
    """The clipped surrogate of every token.

        rho = exp(logp - logp_old)
        loss = -min(rho * A, clip(rho, 1 - low, 1 + high) * A)

    PPO's objective (Schulman et al. 2017, arXiv 1707.06347, equation 7) as GRPO has it (Shao et al. 2024, arXiv
    2402.03300, equation 3), with an upper bound of its own (DAPO, Yu et al. 2025, arXiv 2503.14476, equation 10).
    """
    return _pessimistic(mx.exp(scored.logprobs - scored.old_logprobs), scored.advantages[:, None], clip)


def sequence_surrogate(scored: ScoredAnswers, clip: ClipRange | None) -> tuple[mx.array, mx.array]:
    """The clipped surrogate of every answer, given to each of its tokens.

        s = exp(1/|y| sum_t (logp_t - logp_old_t))
        loss = -min(s * A, clip(s, 1 - low, 1 + high) * A)

    GSPO (Zheng et al. 2025, arXiv 2507.18071, equations 5 and 7): ratio and clip have the unit that was rewarded. The
    gradient goes through s, so all tokens of an answer are weighted alike, and all of them or none are cut.
    """
    log_ratio = (scored.logprobs - scored.old_logprobs) * scored.mask
    ratio = mx.exp(mx.sum(log_ratio, axis=-1) / mx.sum(scored.mask, axis=-1))
    losses, clipped = _pessimistic(ratio, scored.advantages, clip)
    shape = scored.logprobs.shape
    return mx.broadcast_to(losses[:, None], shape), mx.broadcast_to(clipped[:, None], shape)


def clipped_weight(scored: ScoredAnswers, clip: ClipRange | None) -> tuple[mx.array, mx.array]:
    """The log-probability of every token, weighted by the clipped ratio as a constant.

        loss = -stop_gradient(clip(rho, 1 - low, 1 + high)) * A * logp

    CISPO (MiniMax-M1, 2025, arXiv 2506.13585): the clip bounds how much a token counts and never takes its gradient
    away, which keeps rare tokens that turn an argument in the training.
    """
    assert clip is not None
    ratio = mx.stop_gradient(mx.exp(scored.logprobs - scored.old_logprobs))
    weight = mx.clip(ratio, 1 - clip.low, 1 + clip.high)
    return -weight * scored.advantages[:, None] * scored.logprobs, (weight != ratio).astype(mx.float32)


def log_probability(scored: ScoredAnswers, _clip: ClipRange | None) -> tuple[mx.array, mx.array]:
    """The log-probability of every token: the policy gradient as it is.

        loss = -A * logp

    REINFORCE (Williams 1992) and RLOO (Ahmadian et al. 2024, arXiv 2402.14740). The answers are taken for the trained
    policy's own, which is exact in the first step after sampling and less so in each later one; nothing bounds how far
    the policy moves.
    """
    return -scored.advantages[:, None] * scored.logprobs, mx.zeros_like(scored.logprobs)


def _pessimistic(ratio: mx.array, advantage: mx.array, clip: ClipRange | None) -> tuple[mx.array, mx.array]:
    assert clip is not None
    free = ratio * advantage
    clipped = mx.clip(ratio, 1 - clip.low, 1 + clip.high) * advantage
    return -mx.minimum(free, clipped), (clipped < free).astype(mx.float32)


# -------------------------------------------------------------------------------------------- terms that any loss takes


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


# -------------------------------------------------------------------------------------------------------- aggregations


def token_mean(losses: mx.array, mask: mx.array, divisors: Divisors) -> mx.array:
    """Every token weighs the same, whatever the length of its answer.

        1 / sum_i |y_i| * sum_i sum_t loss_it

    DAPO (equation 12), whose sums run over a group; here they run over the minibatch.
    """
    return mx.sum(losses * mask) / divisors.tokens


def sequence_mean(losses: mx.array, mask: mx.array, divisors: Divisors) -> mx.array:
    """Every answer weighs the same, so the tokens of long ones weigh less.

        1/B sum_i 1/|y_i| sum_t loss_it

    GRPO as published (equation 3) and GSPO (equation 5).
    """
    return mx.sum(mx.sum(losses * mask, axis=-1) / mx.sum(mask, axis=-1)) / divisors.rollouts


def constant_length(losses: mx.array, mask: mx.array, divisors: Divisors) -> mx.array:
    """Answers' sums of losses, divided by a length that is the same for all.

        1/B sum_i 1/L_max sum_t loss_it

    Dr. GRPO (Liu et al. 2025, arXiv 2503.20783, section 3.2): no answer's own length plays a part. The constant only
    scales the gradient; with it the learning rate and `max_grad_norm` mean what they mean for the other methods.
    """
    return mx.sum(losses * mask) / (divisors.rollouts * divisors.max_tokens)
