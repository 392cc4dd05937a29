"""Log-probabilities and gradients without the logits equal those with them."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rlm_core.model import head as module
from rlm_core.model.head import chosen_logprobs

WIDTH, VOCABULARY = 16, 700


def data(positions: int = 40) -> tuple[nn.Linear, mx.array, mx.array, mx.array]:
    """A head, hidden states [2, T, D], tokens [2, T] and a loss's weight of each position."""
    mx.random.seed(3)
    head = nn.Linear(WIDTH, VOCABULARY, bias=True)
    hidden = mx.random.normal((2, positions, WIDTH)) * 3
    return head, hidden, mx.random.randint(0, VOCABULARY, (2, positions)), mx.random.normal((2, positions))


def plain(head: nn.Linear, hidden: mx.array, tokens: mx.array, temperature: float) -> mx.array:
    logits = head(hidden) / temperature
    return mx.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0] - mx.logsumexp(logits, axis=-1)


@pytest.fixture(params=["numpy", "mlx"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of computing a softmax, and chunks that do not divide the positions."""
    monkeypatch.setattr(module, "_CHUNK", 7)
    if request.param == "mlx":
        monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("differentiable", [False, True])
def test_log_probabilities_are_those_of_the_softmax(temperature: float, differentiable: bool) -> None:
    head, hidden, tokens, _ = data()
    ours = chosen_logprobs(head, hidden, tokens, temperature, differentiable)
    np.testing.assert_allclose(np.array(ours), np.array(plain(head, hidden, tokens, temperature)), atol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_gradients_are_those_of_the_plain_computation(temperature: float) -> None:
    head, hidden, tokens, weights = data()

    def ours(states: mx.array) -> mx.array:
        return mx.sum(mx.exp(chosen_logprobs(head, states, tokens, temperature, differentiable=True)) * weights)

    def theirs(states: mx.array) -> mx.array:
        return mx.sum(mx.exp(plain(head, states, tokens, temperature)) * weights)

    got, expected = mx.grad(ours)(hidden), mx.grad(theirs)(hidden)
    np.testing.assert_allclose(np.array(got), np.array(expected), atol=1e-6 * np.abs(np.array(expected)).max() + 1e-9)


def test_a_gradient_by_hand() -> None:
    """One state h = 0, two tokens with weights (1, 0) and (0, 1): p = 1/2, so the slope is (1/2, -1/2) / τ."""
    head = nn.Linear(2, 2, bias=False)
    head.weight = mx.eye(2)
    grad = mx.grad(lambda h: chosen_logprobs(head, h, mx.array([[0]]), 2.0, differentiable=True).sum())
    np.testing.assert_allclose(np.array(grad(mx.zeros((1, 1, 2)))), [[[0.25, -0.25]]], atol=1e-7)


def test_large_logits_do_not_overflow() -> None:
    head = nn.Linear(2, 2, bias=False)
    head.weight = mx.array([[1000.0, 0.0], [0.0, 1000.0]])
    hidden = mx.array([[[1.0, 0.0]]])
    assert chosen_logprobs(head, hidden, mx.array([[0]])).item() == 0.0
    assert chosen_logprobs(head, hidden, mx.array([[1]])).item() == -1000.0
