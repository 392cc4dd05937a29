"""Attention of answers to a shared prompt is attention: value, gradient, and only where mlx-lm's models ask for it."""

from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import llama, qwen3
from mlx_lm.models.base import create_causal_mask, scaled_dot_product_attention

from rlm_core.cpu.attention import attend
from rlm_core.model.shared_prompt import PromptCache, use_shared_attention

HEADS = {"as many heads of queries as of keys": (4, 4), "three to one": (6, 2)}
SIZES = {"several tokens": (3, 7, 11), "one token": (2, 1, 5), "one row": (1, 4, 1)}


@pytest.fixture(params=list(HEADS.values()), ids=list(HEADS))
def heads(request: pytest.FixtureRequest) -> tuple[int, int]:
    queries, keys = request.param
    return queries, keys


@pytest.fixture(params=list(SIZES.values()), ids=list(SIZES))
def arrays(request: pytest.FixtureRequest, heads: tuple[int, int]) -> list[mx.array]:
    """Queries, the prompt's keys and values, the answers', and a weight for each number of the output."""
    (rows, tokens, prompt), (queries, keys), width = request.param, heads, 8
    shapes = [(rows, queries, tokens), (1, keys, prompt), (1, keys, prompt), (rows, keys, tokens), (rows, keys, tokens)]
    generator = np.random.default_rng(1)
    drawn = [generator.normal(size=(*shape, width), scale=2) for shape in [*shapes, shapes[0]]]
    return [mx.array(array.astype(np.float32)) for array in drawn]


def ours(queries: mx.array, *parts: mx.array) -> mx.array:
    return attend(queries, (parts[0], parts[1]), (parts[2], parts[3]), scale=0.3)


def plain(queries: mx.array, *parts: mx.array) -> mx.array:
    rows, tokens = queries.shape[0], queries.shape[2]
    keys, values = (mx.concatenate([mx.repeat(parts[part], rows, axis=0), parts[part + 2]], axis=2) for part in (0, 1))
    mask = create_causal_mask(tokens, parts[0].shape[2])
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.3, mask=mask)


def test_the_output_is_that_of_plain_attention(arrays: list[mx.array]) -> None:
    *inputs, _ = arrays
    assert mx.allclose(ours(*inputs), plain(*inputs), rtol=1e-5, atol=1e-5)


def test_every_gradient_is_that_of_plain_attention(arrays: list[mx.array]) -> None:
    *inputs, weights = arrays
    found, expected = (
        mx.grad(lambda *given, attention=attention: (weights * attention(*given)).sum(), argnums=(0, 1, 2, 3, 4))(
            *inputs
        )
        for attention in (ours, plain)
    )
    for one, other in zip(found, expected, strict=True):
        assert mx.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_scores_far_apart_neither_overflow_nor_vanish(arrays: list[mx.array]) -> None:
    queries, *rest, weights = arrays
    inputs = [200 * queries, *rest]
    assert mx.allclose(ours(*inputs), plain(*inputs), rtol=1e-3, atol=1e-3)
    slopes = mx.grad(lambda *given: (weights * ours(*given)).sum(), argnums=(0, 1, 2, 3, 4))(*inputs)
    assert all(mx.isfinite(slope).all().item() for slope in slopes)


def test_a_later_token_has_no_influence_at_all(arrays: list[mx.array]) -> None:
    queries, prompt_keys, prompt_values, keys, values, _ = arrays
    before = ours(queries, prompt_keys, prompt_values, keys, values)[:, :, :-1]
    changed = [mx.concatenate([array[:, :, :-1], array[:, :, -1:] + 50], axis=2) for array in (keys, values)]
    after = ours(queries, prompt_keys, prompt_values, *changed)[:, :, :-1]
    assert mx.array_equal(before, after)


@pytest.mark.parametrize("architecture", [llama, qwen3], ids=lambda module: module.__name__)
def test_a_model_of_this_kind_uses_it_for_the_answers_to_a_shared_prompt(
    architecture: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model(architecture)
    assert use_shared_attention(model)
    calls: list[int] = []

    def noted(queries: mx.array, *others: Any) -> mx.array:
        calls.append(queries.shape[2])
        return attend(queries, *others)

    monkeypatch.setattr("rlm_core.model.shared_prompt.attend", noted)
    prompt, answers = mx.array([[1, 2, 3]]), mx.array([[4, 5], [6, 7]])
    caches = [PromptCache() for _ in model.layers]
    model(prompt, cache=caches)
    shared = model(answers, cache=caches)
    assert calls == [2] * len(model.layers)
    rows = mx.concatenate([mx.repeat(prompt, 2, axis=0), answers], axis=1)
    assert mx.allclose(shared, model(rows)[:, 3:], atol=1e-4)
    assert calls == [2] * len(model.layers), "without a prompt's cache, attention is mlx-lm's"


def test_elsewhere_than_on_a_cpu_mlx_has_better_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "scaled_dot_product_attention", scaled_dot_product_attention)
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
    assert not use_shared_attention(_model(llama))
    assert llama.scaled_dot_product_attention is scaled_dot_product_attention


def _model(architecture: ModuleType) -> Any:
    sizes = {
        "model_type": architecture.__name__.rpartition(".")[2],
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 20,
        "head_dim": 4,
        "max_position_embeddings": 64,
        "rope_theta": 1e4,
        "tie_word_embeddings": True,
    }
    return architecture.Model(architecture.ModelArgs.from_dict(sizes))
