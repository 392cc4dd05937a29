"""Losses against hand-computed values and slow references."""

import math

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.training.losses import (
    ClipRange,
    Divisors,
    ScoredAnswers,
    TokenLosses,
    clipped_surrogate,
    clipped_weight,
    constant_length,
    importance_weights,
    k3_divergence,
    log_probability,
    sequence_mean,
    sequence_surrogate,
    token_mean,
)

CLIP = ClipRange(low=0.2, high=0.28)


def scored(logprobs: mx.array, old_logprobs: mx.array, advantages: list[float]) -> ScoredAnswers:
    """Answers without padding."""
    return ScoredAnswers(logprobs, old_logprobs, mx.ones(logprobs.shape), mx.array(advantages))


def gradient(losses: TokenLosses, logprobs: mx.array, old_logprobs: mx.array, advantages: list[float]) -> np.ndarray:
    """Of the sum of all tokens' losses."""

    def loss(x: mx.array) -> mx.array:
        return mx.sum(losses(scored(x, old_logprobs, advantages), CLIP)[0])

    return np.array(mx.grad(loss)(logprobs))


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
    losses, cut = clipped_surrogate(scored(logprobs, mx.zeros((1, 1)), [advantage]), CLIP)
    assert losses.item() == pytest.approx(loss, rel=1e-5)
    assert cut.item() == clipped


@pytest.mark.parametrize("losses", [clipped_surrogate, clipped_weight, log_probability])
def test_at_ratio_one_every_token_loss_has_the_policy_gradient(losses: TokenLosses) -> None:
    logprobs = mx.array([[-1.0, -2.0], [-0.5, -3.0]])
    expected = [[-0.7, -0.7], [1.3, 1.3]]
    np.testing.assert_allclose(gradient(losses, logprobs, logprobs, [0.7, -1.3]), expected, rtol=1e-6)


def test_at_ratio_one_the_sequence_loss_has_the_policy_gradient_over_the_length() -> None:
    logprobs = mx.array([[-1.0, -2.0], [-0.5, -3.0]])
    np.testing.assert_allclose(
        gradient(sequence_surrogate, logprobs, logprobs, [0.7, -1.3]) / 2, [[-0.35, -0.35], [0.65, 0.65]], rtol=1e-6
    )


def test_tokens_that_the_surrogate_clips_have_no_gradient() -> None:
    moved = gradient(clipped_surrogate, mx.array([[math.log(1.2), math.log(1.4)]]), mx.zeros((1, 2)), [1.0])
    assert moved[0, 0] != 0
    assert moved[0, 1] == 0


def test_an_answer_is_cut_as_a_whole_when_its_own_ratio_leaves_the_range() -> None:
    # One token far above the range and one below: their geometric mean is sqrt(1.6 * 0.9) = 1.2 < 1.28. Then 1.6, 1.6.
    logprobs = mx.array([[math.log(1.6), math.log(0.9)], [math.log(1.6), math.log(1.6)]])
    moved = gradient(sequence_surrogate, logprobs, mx.zeros((2, 2)), [1.0, 1.0])
    np.testing.assert_allclose(moved, [[-1.2, -1.2], [0.0, 0.0]], rtol=1e-6)
    _, cut = sequence_surrogate(scored(logprobs, mx.zeros((2, 2)), [1.0, 1.0]), CLIP)
    assert cut.tolist() == [[0, 0], [1, 1]]


def test_padding_has_no_part_in_an_answers_ratio() -> None:
    logprobs = mx.array([[math.log(1.1), 5.0]])
    padded = ScoredAnswers(logprobs, mx.zeros((1, 2)), mx.array([[1.0, 0.0]]), mx.array([1.0]))
    assert sequence_surrogate(padded, CLIP)[0][0, 0].item() == pytest.approx(-1.1, rel=1e-6)


def test_a_clipped_weight_bounds_the_gradient_and_never_takes_it_away() -> None:
    ratios = [1.2, 1.4, 0.5]
    logprobs = mx.log(mx.array([ratios]))
    moved = gradient(clipped_weight, logprobs, mx.zeros((1, 3)), [1.0])
    np.testing.assert_allclose(moved, [[-1.2, -1.28, -0.8]], rtol=1e-6)
    losses, cut = clipped_weight(scored(logprobs, mx.zeros((1, 3)), [1.0]), CLIP)
    np.testing.assert_allclose(
        np.array(losses), [[-1.2 * math.log(1.2), -1.28 * math.log(1.4), -0.8 * math.log(0.5)]], rtol=1e-5
    )
    assert cut.tolist() == [[0, 1, 1]]


def test_a_lower_bound_of_1_below_is_none() -> None:
    logprobs = mx.array([[math.log(0.01)]])
    losses, cut = clipped_weight(scored(logprobs, mx.zeros((1, 1)), [1.0]), ClipRange(1.0, 4.0))
    assert losses.item() == pytest.approx(-0.01 * math.log(0.01), rel=1e-5)
    assert cut.item() == 0


def test_k3_by_hand_and_never_negative() -> None:
    assert k3_divergence(mx.array(-1.0), mx.array(-1.5)).item() == pytest.approx(math.exp(-0.5) + 0.5 - 1, rel=1e-5)
    mx.random.seed(0)
    a, b = mx.random.normal((50,)), mx.random.normal((50,))
    assert (k3_divergence(a, b) >= 0).all().item()
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


def test_aggregations_by_hand() -> None:
    losses, mask = mx.array([[1.0, 2.0, 50.0], [4.0, 50.0, 50.0]]), mx.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    divisors = Divisors(tokens=3, rollouts=2, max_tokens=10)
    assert token_mean(losses, mask, divisors).item() == pytest.approx(7 / 3)
    assert sequence_mean(losses, mask, divisors).item() == pytest.approx((3 / 2 + 4) / 2)
    assert constant_length(losses, mask, divisors).item() == pytest.approx(7 / 20)
