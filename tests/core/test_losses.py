"""Losses against hand-computed values and slow references."""

import math

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.losses import ClipRange, grpo_token_losses, importance_weights, k3_divergence, token_mean

CLIP = ClipRange(low=0.2, high=0.28)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, 0.0),
        (1.1, 2.0, -2.2, 0.0),
        (1.5, 2.0, -2.56, 1.0),  # above 1.28: the gain is cut
        (0.5, 2.0, -1.0, 0.0),  # a good token that became rarer keeps its gradient
        (0.5, -1.0, 0.8, 1.0),  # below 0.8: the gain is cut
        (1.5, -1.0, 1.5, 0.0),  # a bad token that became likelier keeps its gradient
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, loss: float, clipped: float) -> None:
    logprobs = mx.array([[math.log(ratio)]])
    losses, cut = grpo_token_losses(logprobs, mx.zeros((1, 1)), mx.array([advantage]), CLIP)
    assert losses.item() == pytest.approx(loss, rel=1e-5)
    assert cut.item() == clipped


def test_gradient_at_ratio_one_is_the_policy_gradient() -> None:
    logprobs, advantages = mx.array([[-1.0, -2.0], [-0.5, -3.0]]), mx.array([0.7, -1.3])

    def loss(x: mx.array) -> mx.array:
        losses, _ = grpo_token_losses(x, mx.stop_gradient(x), advantages, CLIP)
        return mx.sum(losses)

    np.testing.assert_allclose(np.array(mx.grad(loss)(logprobs)), [[-0.7, -0.7], [1.3, 1.3]], rtol=1e-6)


def test_clipped_tokens_have_no_gradient() -> None:
    def loss(x: mx.array) -> mx.array:
        losses, _ = grpo_token_losses(x, mx.zeros_like(x), mx.array([1.0]), CLIP)
        return mx.sum(losses)

    gradient = mx.grad(loss)(mx.array([[math.log(1.2), math.log(1.4)]]))
    assert gradient[0, 0].item() != 0
    assert gradient[0, 1].item() == 0


def test_k3_by_hand_and_never_negative() -> None:
    assert k3_divergence(mx.array(-1.0), mx.array(-1.5)).item() == pytest.approx(math.exp(-0.5) + 0.5 - 1, rel=1e-5)
    mx.random.seed(0)
    a, b = mx.random.normal((50,)), mx.random.normal((50,))
    assert mx.min(k3_divergence(a, b)).item() >= 0
    assert mx.max(mx.abs(k3_divergence(a, a))).item() == 0


def test_k3_is_an_unbiased_estimate_of_the_divergence() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    k3 = np.array(k3_divergence(mx.array(np.log(p).astype(np.float32)), mx.array(np.log(q).astype(np.float32))))
    assert (p * k3).sum() == pytest.approx((p * np.log(p / q)).sum(), abs=1e-6)


def test_importance_weights_are_cut_at_the_cap() -> None:
    old, behaviour = mx.array([[0.0, 0.0, -3.0]]), mx.array([[0.0, -2.0, 0.0]])
    np.testing.assert_allclose(
        np.array(importance_weights(old, behaviour, cap=2.0)), [[1.0, 2.0, math.exp(-3)]], rtol=1e-6
    )


def test_token_mean_counts_masked_tokens_only() -> None:
    losses, mask = mx.array([[1.0, 2.0, 50.0], [4.0, 50.0, 50.0]]), mx.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert token_mean(losses, mask, tokens=3).item() == pytest.approx(7 / 3)
