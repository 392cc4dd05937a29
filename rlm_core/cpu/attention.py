"""Attention of several answers to one prompt, with less work than attention of each row by itself.

With queries q of answer tokens (scaled), keys k and values v, of which the first P belong to the prompt of all rows:

    s = q kᵀ,          p = exp(s - log Σ exp s),      o = p v
    ∂v = pᵀ ∂o,        ∂s = p (∂o vᵀ - Σ o ∂o),       ∂q = ∂s k,    ∂k = ∂sᵀ q

The backward pass works p out again from the logarithms that the forward pass keeps, as FlashAttention does (Dao et al.
2022, arXiv 2205.14135, algorithm 4). The prompt's keys and values are not copied for each row, and the exponential is
that of `exponential.py`. MLX on a CPU computes one exponential after the other, and all of them again in its backward
pass.

Axes: B rows, H heads of queries, K heads of keys and values (H / K heads of queries share one), T tokens of an answer,
P tokens of the prompt, D width of a head; R = H / K · T.
"""

from functools import partial
from typing import cast

import mlx.core as mx

from rlm_core.cpu.exponential import exp_of_negative

_FAR = 1e9
"""How much less a later token's score is."""


def attend(
    queries: mx.array, prompt: tuple[mx.array, mx.array], answers: tuple[mx.array, mx.array], scale: float
) -> mx.array:
    """Causal attention of answers to themselves and to all of their prompt.

    Args:
        queries: float32 [B, H, T, D].
        prompt: keys and values [1, K, P, D].
        answers: keys and values [B, K, T, D].
        scale: of the products.

    Returns:
        float32 [B, H, T, D].
    """
    rows, heads, _, width = queries.shape
    shared = prompt[0].shape[1]
    folded = (queries * scale).reshape(rows, shared, -1, width)
    by_head = [array.swapaxes(0, 1) for array in (folded, *prompt, *answers)]
    output, _ = cast(tuple[mx.array, mx.array], _attend(*by_head))
    return output.swapaxes(0, 1).reshape(rows, heads, -1, width)


@mx.custom_function
def _attend(
    queries: mx.array, prompt_keys: mx.array, prompt_values: mx.array, keys: mx.array, values: mx.array
) -> tuple[mx.array, mx.array]:
    """o [K, B, R, D] and log Σ exp s [K, B, R, 1].

    Queries are [K, B, R, D], the prompt's keys and values [K, 1, P, D], the answers' [K, B, T, D].
    """
    before, own, past = _scores(queries, prompt_keys, keys)
    greatest = mx.maximum(before.max(axis=-1, keepdims=True), own.max(axis=-1, keepdims=True))
    before, own = _exp_of_difference(before, greatest), _exp_of_difference(own, greatest) * past
    total = before.sum(axis=-1, keepdims=True) + own.sum(axis=-1, keepdims=True)
    return (_times(before, prompt_values) + own @ values) / total, greatest + mx.log(total)


@_attend.vjp
def _attend_vjp(
    primals: tuple[mx.array, ...], cotangents: tuple[mx.array, mx.array], outputs: tuple[mx.array, mx.array]
) -> tuple[mx.array, ...]:
    queries, prompt_keys, prompt_values, keys, values = primals
    slope, (output, logarithm) = cotangents[0], outputs
    before, own, past = _scores(queries, prompt_keys, keys)
    before, own = _exp_of_difference(before, logarithm), _exp_of_difference(own, logarithm) * past
    mean = (output * slope).sum(axis=-1, keepdims=True)
    before_slope = _score_slope(before, _times(slope, _transposed(prompt_values)), mean)
    own_slope = _score_slope(own, slope @ _transposed(values), mean)
    return (
        _times(before_slope, prompt_keys) + own_slope @ keys,
        _summed_over_rows(before_slope, queries),
        _summed_over_rows(before, slope),
        _transposed(own_slope) @ queries,
        _transposed(own) @ slope,
    )


def _scores(queries: mx.array, prompt_keys: mx.array, keys: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """s for prompt [K, B, R, P] and answers [K, B, R, T]; and [R, T], 0 where a token is a later one, else 1."""
    tokens = keys.shape[2]
    past = mx.tile(mx.tri(tokens), (queries.shape[2] // tokens, 1))
    return _times(queries, _transposed(prompt_keys)), queries @ _transposed(keys) + (past - 1) * _FAR, past


def _transposed(array: mx.array) -> mx.array:
    return array.swapaxes(-1, -2)


def _times(rows: mx.array, prompt: mx.array) -> mx.array:
    """[K, B, R, N] times [K, 1, N, M], as one product for each of K: [K, B, R, M]."""
    return (rows.flatten(1, 2) @ prompt[:, 0]).reshape(*rows.shape[:3], -1)


def _summed_over_rows(left: mx.array, right: mx.array) -> mx.array:
    """Transposed [K, B, R, N] times [K, B, R, M], summed over B: [K, 1, N, M]."""
    return (_transposed(left.flatten(1, 2)) @ right.flatten(1, 2))[:, None]


@partial(mx.compile, shapeless=True)
def _exp_of_difference(scores: mx.array, greatest: mx.array) -> mx.array:
    return exp_of_negative(scores - greatest)


@partial(mx.compile, shapeless=True)
def _score_slope(shares: mx.array, products: mx.array, mean: mx.array) -> mx.array:
    return shares * (products - mean)
