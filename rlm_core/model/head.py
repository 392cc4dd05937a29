"""Log-probabilities of chosen tokens from hidden states, without keeping logits of the whole vocabulary.

With logits z = head(h) of a position, the token y that was chosen there and the temperature τ:

    log p(y)         = z[y] / τ - log Σ_v exp(z[v] / τ)
    ∂ log p(y) / ∂ h = headᵀ((e_y - softmax(z / τ)) / τ)

A loss depends on h only by log p(y), one number a position, so its gradient with respect to h is that number's times
the second line. Both lines are worked out together, a chunk of positions at a time, and only they are kept: the memory
does not grow with positions times vocabulary, and no exponential is computed twice.

Axes: B rows, T positions, N positions in a chunk, D width of the model, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import mlx.core as mx

from rlm_core.cpu.exponential import exp_of_negative

_CHUNK = 64
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
        return _softmax_parts(_logits(head, hidden, temperature), tokens)[0]

    @mx.custom_function
    def with_slopes(states: mx.array) -> tuple[mx.array, mx.array]:
        return _with_slopes(head, states, tokens, temperature)

    @with_slopes.vjp
    def backward(_states: mx.array, cotangents: list[mx.array], outputs: list[mx.array]) -> mx.array:
        return (cotangents[0][:, None] * outputs[1]).astype(hidden.dtype)

    logprobs, _ = cast(tuple[mx.array, mx.array], with_slopes(hidden))
    return logprobs


@partial(mx.compile, shapeless=True)
def _weights(logits: mx.array, greatest: mx.array) -> mx.array:
    return exp_of_negative(logits - greatest)


def _softmax_parts(logits: mx.array, tokens: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Log-probabilities [N] from logits [N, V] at the temperature; exp(z - max z), [N, V], and its sums, [N]."""
    greatest = mx.max(logits, axis=-1, keepdims=True)
    weights = _weights(logits, greatest)
    totals = mx.sum(weights, axis=-1)
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1) - greatest
    return chosen[:, 0] - mx.log(totals), weights, totals


def _with_slopes(head: Head, hidden: mx.array, tokens: mx.array, temperature: float) -> tuple[mx.array, mx.array]:
    """Log-probabilities [N] and their gradients with respect to the hidden states, [N, D]."""
    logprobs, weights, totals = _softmax_parts(_logits(head, hidden, temperature), tokens)
    difference = (
        (weights * (-1 / (temperature * totals))[:, None]).at[mx.arange(len(tokens)), tokens].add(1 / temperature)
    )
    _, [slopes] = mx.vjp(lambda states: head(states).astype(mx.float32), [hidden], [difference])
    return logprobs, slopes


def _logits(head: Head, hidden: mx.array, temperature: float) -> mx.array:
    return head(hidden).astype(mx.float32) / temperature
