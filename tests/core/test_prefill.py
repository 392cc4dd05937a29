"""Prompts computed together: the same keys and values as one by one, and each no more often than it must be."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

from rlm_core.model import prefill
from rlm_core.model.decoding import Request
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.model.prefill import Prefill

HEAD = (5, 6, 7, 8)
PROMPTS = [(*HEAD, 9, 10), (*HEAD, 11), (*HEAD, 9, 12, 13, 14, 15), (*HEAD, 10)]


MakeCache = Callable[[], Any]
"""An empty cache of one layer."""


def alone(policy: Policy, prompt: tuple[int, ...], make_cache: MakeCache) -> list[Any]:
    cache = [make_cache() for _ in policy.model.layers]
    if prompt[:-1]:
        policy.model(mx.array([prompt[:-1]]), cache=cache)
    return cache


def next_logits(policy: Policy, caches: list[Any], prompts: list[tuple[int, ...]]) -> np.ndarray:
    return np.array(policy.model(mx.array([[prompt[-1]] for prompt in prompts]), cache=caches)[:, -1])


@pytest.mark.parametrize("at_once", [1, 6, 512], ids=["each alone", "some", "all"])
@pytest.mark.parametrize(
    "prompts",
    [PROMPTS, PROMPTS[:1], [(3,), (4, 5)], [(3, 4), (3, 4, 5, 6)], [(1, 2, 3), (4, 5)]],
    ids=["a head", "one prompt", "one token", "one begins the other", "nothing in common"],
)
@pytest.mark.parametrize("make_cache", [KVCache, lambda: RotatingKVCache(max_size=16)], ids=["all", "a window"])
def test_prompts_together_are_as_each_is_alone(
    policy: Policy,
    prompts: list[tuple[int, ...]],
    at_once: int,
    make_cache: MakeCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefill, "_TOKENS_AT_ONCE", at_once)
    together = Prefill(policy.model, lambda: [make_cache() for _ in policy.model.layers], prompts).caches(prompts)
    expected = [next_logits(policy, alone(policy, prompt, make_cache), [prompt])[0] for prompt in prompts]
    np.testing.assert_allclose(next_logits(policy, together, prompts), expected, rtol=1e-4, atol=1e-4)


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
