"""Prompts computed together: the same keys and values as one by one, and each no more often than it must be."""

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from rlm_core.model import prefill
from rlm_core.model.decoding import Request
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.model.prefill import Prefill

HEAD = (5, 6, 7, 8)
PROMPTS = [(*HEAD, 9, 10), (*HEAD, 11), (*HEAD, 9, 12, 13, 14, 15), (*HEAD, 10)]

MakeCache = Callable[[], Any]
"""An empty cache of one layer."""

CACHES = [KVCache, *(partial(RotatingKVCache, max_size=size) for size in (2, 3, 5, 16))]
AFTER = 6
"""Tokens that follow each prompt: more than some windows hold, so that what is behind them must be gone."""


def alone(model: nn.Module, prompt: tuple[int, ...], make_cache: MakeCache) -> list[Any]:
    cache = [make_cache() for _ in model.layers]
    if prompt[:-1]:
        model(mx.array([prompt[:-1]]), cache=cache)
    return cache


def next_logits(model: nn.Module, caches: list[Any], prompts: list[tuple[int, ...]]) -> np.ndarray:
    """[B, steps, V] after each prompt's last token and after the same few tokens behind it."""
    steps = [[prompt[-1] for prompt in prompts], *([20 + step] * len(prompts) for step in range(AFTER))]
    return np.stack([np.array(model(mx.array(step)[:, None], cache=caches)[:, -1]) for step in steps], axis=1)


def assert_as_alone(model: nn.Module, prompts: list[tuple[int, ...]], make_cache: MakeCache) -> None:
    together = Prefill(model, lambda: [make_cache() for _ in model.layers], prompts).caches(prompts)
    expected = [next_logits(model, alone(model, prompt, make_cache), [prompt])[0] for prompt in prompts]
    np.testing.assert_allclose(next_logits(model, together, prompts), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("at_once", [1, 6, 512], ids=["each alone", "some", "all"])
@pytest.mark.parametrize(
    "prompts",
    [PROMPTS, PROMPTS[:1], [(3,), (4, 5)], [(3, 4), (3, 4, 5, 6)], [(1, 2, 3), (4, 5)]],
    ids=["a head", "one prompt", "one token", "one begins the other", "nothing in common"],
)
@pytest.mark.parametrize("make_cache", CACHES, ids=["all", "2 tokens", "3 tokens", "5 tokens", "16 tokens"])
def test_prompts_together_are_as_each_is_alone(
    policy: Policy,
    prompts: list[tuple[int, ...]],
    at_once: int,
    make_cache: MakeCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefill, "_TOKENS_AT_ONCE", at_once)
    assert_as_alone(policy.model, prompts, make_cache)


class Sums(nn.Module):
    """A recurrent model of one layer that, like several of mlx-lm's, does not ask its cache how long a row is."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = [nn.Embedding(40, 8)]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        before = 0 if cache[0][0] is None else cache[0][0]
        sums = mx.cumsum(self.layers[0](tokens), axis=1) + before
        cache[0][0] = sums[:, -1:]
        logits: mx.array = self.layers[0].as_linear(sums)
        return logits


@pytest.mark.parametrize(
    "prompts", [PROMPTS, [(3,), (4, 5)], [(1, 2, 3), (4, 5, 6), (7, 8)]], ids=["a head", "one token", "two lengths"]
)
def test_a_recurrent_layer_never_reads_padding(prompts: list[tuple[int, ...]]) -> None:
    assert_as_alone(Sums(), prompts, lambda: ArraysCache(size=1))


def test_what_all_prompts_begin_with_is_computed_once(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    kind = type(policy.model)
    call = kind.__call__

    def counted(self: Any, tokens: mx.array, *given: Any, **named: Any) -> Any:
        shapes.append(tokens.shape)
        return call(self, tokens, *given, **named)

    monkeypatch.setattr(kind, "__call__", counted)
    requests = [Request(prompt, seed) for prompt in PROMPTS for seed in range(3)]
    policy.sample(requests, Sampling(temperature=1.0, max_tokens=1), batch_size=6)
    assert shapes == [(1, 4), (2, 2), (6, 1), (2, 4), (6, 1)]
