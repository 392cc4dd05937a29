"""Log-probabilities of chosen tokens from hidden states, without keeping logits of the whole vocabulary.

With logits z = head(h) of a position, the token y that was chosen there and the temperature τ:

    log p(y)         = z[y] / τ - log Σ_v exp(z[v] / τ)
    ∂ log p(y) / ∂ h = headᵀ((e_y - softmax(z / τ)) / τ)

A loss depends on h only by log p(y), one number a position, so its gradient with respect to h is that number's times
the second line. Both lines are worked out together, a chunk of positions at a time, and only they are kept: the memory
does not grow with positions times vocabulary, and no exponential is computed twice. On a CPU, where MLX computes one
exponential after the other, NumPy computes them.

Axes: B rows, T positions, N positions in a chunk, D width of the model, V vocabulary.
"""

from collections.abc import Callable
from typing import cast

import mlx.core as mx
import numpy as np

_CHUNK = 256
"""Positions whose logits are in memory at once."""

Head = Callable[[mx.array], mx.array]
"""From hidden states [N, D] to logits [N, V]. Its own weights get no gradient from here."""


def chosen_logprobs(
    head: Head, hidden: mx.array, tokens: mx.array, temperature: float = 1.0, differentiable: bool = True
) -> mx.array:
    """Log-probabilities of tokens.

    Args:
        head: the vocabulary head; not trained.
        hidden: the model's hidden states [B, T, D].
        tokens: int [B, T].
        temperature: logits are divided by it.
        differentiable: whether a gradient with respect to `hidden` may be asked for, which is half of the work.

    Returns:
        float32 [B, T], in nats.
    """
    flat, chosen = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)
    parts = [
        _chunk(head, flat[start : start + _CHUNK], chosen[start : start + _CHUNK], temperature, differentiable)
        for start in range(0, flat.shape[0], _CHUNK)
    ]
    return mx.concatenate(parts).reshape(tokens.shape)


def _chunk(head: Head, hidden: mx.array, tokens: mx.array, temperature: float, differentiable: bool) -> mx.array:
    if not differentiable:
        return _worked_out(head, hidden, tokens, temperature, with_slopes=False)[0]
    kept: list[mx.array] = []

    @mx.custom_function
    def logprobs(states: mx.array) -> mx.array:
        values, slopes = _worked_out(head, states, tokens, temperature, with_slopes=True)
        mx.eval(values, slopes)
        kept.append(slopes)
        return values

    @logprobs.vjp
    def backward(_states: mx.array, cotangent: mx.array, _values: mx.array) -> mx.array:
        return (cotangent[:, None] * kept[0]).astype(hidden.dtype)

    return cast(mx.array, logprobs(hidden))


def _worked_out(
    head: Head, hidden: mx.array, tokens: mx.array, temperature: float, with_slopes: bool
) -> tuple[mx.array, mx.array]:
    """Log-probabilities [N] and, if asked for, their gradients with respect to the hidden states, [N, D]."""
    logits = head(hidden).astype(mx.float32) / temperature
    softmax = _softmax_by_numpy if mx.default_device() == mx.cpu else _softmax_by_mlx
    logprobs, difference = softmax(logits, tokens, temperature, with_slopes)
    if not with_slopes:
        return logprobs, difference
    _, [slopes] = mx.vjp(lambda states: head(states).astype(mx.float32), [hidden], [difference])
    return logprobs, slopes


def _softmax_by_numpy(
    logits: mx.array, tokens: mx.array, temperature: float, with_slopes: bool
) -> tuple[mx.array, mx.array]:
    """Log-probabilities [N] and, if asked for, (e_y - softmax) / τ, [N, V]."""
    weights = np.array(logits)
    places = np.arange(len(weights)), np.array(tokens)
    weights -= weights.max(axis=-1, keepdims=True)
    chosen = weights[places]
    np.exp(weights, out=weights)
    totals = weights.sum(axis=-1)
    logprobs = mx.array(chosen - np.log(totals))
    if not with_slopes:
        return logprobs, logprobs
    weights *= -1 / (temperature * totals[:, None])
    weights[places] += 1 / temperature
    return logprobs, mx.array(weights)


def _softmax_by_mlx(
    logits: mx.array, tokens: mx.array, temperature: float, with_slopes: bool
) -> tuple[mx.array, mx.array]:
    """The same where MLX is quick at it."""
    totals = mx.logsumexp(logits, axis=-1, keepdims=True)
    logprobs = (mx.take_along_axis(logits, tokens[:, None], axis=-1) - totals)[:, 0]
    if not with_slopes:
        return logprobs, logprobs
    weights = mx.exp(logits - totals) / -temperature
    return logprobs, weights.at[mx.arange(len(tokens)), tokens].add(1 / temperature)
