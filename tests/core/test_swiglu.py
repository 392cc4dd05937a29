"""The fast activation is the activation: value, gradient, and only where the model has it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rlm_core.cpu.swiglu import swiglu, use_fast_swiglu
from rlm_core.model.tensors import flat

Activation = Callable[[mx.array], mx.array]


def _exact(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    exact: np.ndarray = gate / (1 + np.exp(-gate)) * up
    return exact


@pytest.fixture
def numbers() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    gate = np.concatenate([np.linspace(-40, 40, 4001), [0.0, -1e-30, 1e-30, -200.0, 200.0], generator.normal(size=95)])
    return gate.astype(np.float32), generator.normal(size=gate.size).astype(np.float32)


def test_values_are_those_of_float64_within_a_few_roundings(numbers: tuple[np.ndarray, np.ndarray]) -> None:
    gate, up = numbers
    expected = _exact(gate.astype(np.float64), up.astype(np.float64))
    error = np.abs(np.array(swiglu(mx.array(gate), mx.array(up))) - expected)
    assert np.max(error / np.maximum(1, np.abs(gate * up))) < 4e-7


def test_gradients_are_those_of_the_exact_activation(numbers: tuple[np.ndarray, np.ndarray]) -> None:
    gate, up = (mx.array(each) for each in numbers)
    scale = mx.maximum(1, mx.abs(gate)) * mx.maximum(1, mx.abs(up))
    weights = mx.array(np.random.default_rng(2).normal(size=gate.size).astype(np.float32))
    silu: Any = nn.silu

    def slopes(activation: Any) -> Any:
        return mx.grad(lambda g, u: (weights * activation(g, u)).sum(), argnums=(0, 1))(gate, up)

    ours, exact = slopes(swiglu), slopes(lambda g, u: silu(g) * u)
    for found, expected in zip(ours, exact, strict=True):
        assert (mx.max(mx.abs(found - expected) / scale) < 1e-6).item()


class _Gated(nn.Module):
    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)
        self._activation = activation

    def __call__(self, x: mx.array) -> mx.array:
        y: mx.array = self.down_proj(self._activation(self.gate_proj(x)) * self.up_proj(x))
        return y


@pytest.mark.parametrize(("activation", "changed"), [(nn.silu, 1), (nn.gelu, 0), (nn.relu, 0), (mx.sigmoid, 0)])
def test_only_an_mlp_that_computes_swiglu_is_changed(activation: Activation, changed: int) -> None:
    model = nn.Sequential(_Gated(activation))
    states = mx.random.normal((3, 8))
    before, names = model(states), flat(model.parameters()).keys()
    assert use_fast_swiglu(model) == changed
    assert mx.allclose(model(states), before, atol=1e-6)
    assert flat(model.parameters()).keys() == names
