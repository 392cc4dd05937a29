"""Draws follow the distribution that the logits stand for, and both implementations draw the same."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_core.model.draws import Draw, Sampling, draw_by_mlx, draw_by_numpy

each_way = pytest.mark.parametrize("draw", [draw_by_numpy, draw_by_mlx])
BELOW_ONE = float(np.nextafter(1, 0))


def log(probabilities: list[float]) -> mx.array:
    with np.errstate(divide="ignore"):
        return mx.array(np.log(np.array([probabilities], dtype=np.float32)))


@each_way
@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.24, 1), (0.26, 2), (0.74, 2), (0.76, 4), (0.99, 4), (BELOW_ONE, 4)]
)
def test_a_number_picks_the_token_whose_share_it_falls_into(draw: Draw, uniform: float, token: int) -> None:
    tokens, logprobs = draw(log([0, 0.25, 0.5, 0, 0.25, 0]), Sampling(1.0, 1), [uniform])
    assert tokens == [token]
    assert logprobs == pytest.approx([np.log(0.5 if token == 2 else 0.25)], abs=1e-6)


@each_way
def test_the_temperature_sharpens_and_is_in_the_logprobs(draw: Draw) -> None:
    """At 1/2, weights are squared: 1, 4 and 9 of 14."""
    logits = log([1 / 6, 2 / 6, 3 / 6])
    tokens, logprobs = draw(mx.concatenate([logits] * 3), Sampling(0.5, 1), [0.9 / 14, 4.9 / 14, 5.1 / 14])
    assert tokens == [0, 1, 2]
    assert logprobs == pytest.approx(np.log([1 / 14, 4 / 14, 9 / 14]), abs=1e-6)


@each_way
def test_greedy_takes_the_most_likely_token_with_its_logprob_at_one(draw: Draw) -> None:
    tokens, logprobs = draw(log([0.2, 0.7, 0.1]), Sampling(0.0, 1), [0.99])
    assert tokens == [1]
    assert logprobs == pytest.approx([np.log(0.7)], abs=1e-6)


@each_way
@pytest.mark.parametrize(
    ("limits", "possible"),
    [({"top_k": 2}, {1, 3}), ({"top_p": 0.5}, {1, 3}), ({"top_p": 0.39}, {1}), ({"top_k": 3, "top_p": 0.6}, {1, 3})],
)
def test_top_k_and_top_p_keep_the_likeliest(draw: Draw, limits: dict[str, Any], possible: set[int]) -> None:
    """Of top-p, so many as it takes to reach that probability. Log-probabilities stay those of the whole."""
    logits = mx.concatenate([log([0.1, 0.4, 0.2, 0.3])] * 50)
    tokens, logprobs = draw(logits, Sampling(1.0, 1, **limits), np.linspace(0, 0.999, 50).tolist())
    assert set(tokens) == possible
    expected = np.log([0.1, 0.4, 0.2, 0.3])[tokens]
    assert logprobs == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40)
@given(
    size=st.integers(1, 1000),
    seed=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    limits=st.sampled_from([{}, {"top_k": 7}, {"top_p": 0.8}]),
)
def test_both_ways_draw_the_same(size: int, seed: int, temperature: float, limits: dict[str, Any]) -> None:
    """Up to rounding: a number that falls between two tokens may go to either."""
    generator = np.random.default_rng(seed)
    logits = mx.array(generator.normal(0, 3, (8, size)).astype(np.float32))
    uniforms = generator.random(8).tolist()
    sampling = Sampling(temperature, 1, **limits)
    (ours, logprobs), (theirs, others) = (draw(logits, sampling, uniforms) for draw in (draw_by_numpy, draw_by_mlx))
    equal = np.array(ours) == np.array(theirs)
    assert equal.sum() >= 7
    np.testing.assert_allclose(np.array(logprobs)[equal], np.array(others)[equal], atol=1e-4)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    generator = np.random.default_rng(1)
    logits = mx.array(generator.normal(0, 3, (16, 700)).astype(np.float32))
    uniforms = generator.random(16).tolist()
    together = draw_by_numpy(logits, Sampling(1.0, 1), uniforms)
    alone = [draw_by_numpy(logits[i : i + 1], Sampling(1.0, 1), uniforms[i : i + 1]) for i in range(16)]
    assert together == ([tokens[0] for tokens, _ in alone], [logprobs[0] for _, logprobs in alone])


def test_draws_follow_the_distribution() -> None:
    """Chi-square: its mean is the number of cells less one, its variance twice that."""
    generator = np.random.default_rng(2)
    logits = generator.normal(0, 1, 600).astype(np.float32)
    probabilities = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    rows = mx.array(np.tile(logits, (500, 1)))
    tokens = [t for _ in range(60) for t in draw_by_numpy(rows, Sampling(1.0, 1), generator.random(500).tolist())[0]]
    expected = len(tokens) * probabilities
    statistic = ((np.bincount(tokens, minlength=600) - expected) ** 2 / expected).sum()
    assert abs(statistic - 599) < 4 * np.sqrt(2 * 599)
