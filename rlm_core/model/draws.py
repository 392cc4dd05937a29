"""The next token of every row of a batch, drawn from its logits with random numbers that belong to the row.

Inverse transform sampling: with weights w = exp(logits / temperature) and a uniform number u of the row's own, the
token is the first whose cumulated weight exceeds u times their sum. So an answer depends on its own seed, not on what
else is in the batch, and one random number a token costs far less than Gumbel noise for the whole vocabulary.

There are two implementations. On a CPU, MLX computes one exponential after the other, which takes longer than a small
model's layers; NumPy uses the processor's vector instructions. On other devices the logits stay where they are.

Axes: B rows, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

_BLOCK = 256
"""Weights are cumulated over blocks first, then within the one block that holds the token."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 takes the most likely token; top_k 0 keeps the whole vocabulary."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    top_k: int = 0
    stop_after_code: bool = False
    """End an answer when it holds a whole block of code."""


Draw = Callable[[mx.array, Sampling, Sequence[float]], tuple[list[int], list[float]]]
"""From logits [B, V] and a number in [0, 1) for each row to tokens and their log-probabilities, B of each.

Log-probabilities are at the sampling temperature (at 1 for greedy answers), before top-p and top-k, in nats."""


def draw_by_numpy(logits: mx.array, sampling: Sampling, uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """Draw on the processor."""
    scaled = np.array(logits.astype(mx.float32))
    if sampling.temperature not in (0.0, 1.0):
        scaled /= sampling.temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    weights = np.exp(scaled)
    log_totals = np.log(weights.sum(axis=-1, dtype=np.float64))
    if sampling.temperature == 0:
        tokens = scaled.argmax(axis=-1)
    else:
        tokens = _inverted(_cut(weights, sampling), np.asarray(uniforms))
    chosen = scaled[np.arange(len(tokens)), tokens]
    return tokens.tolist(), (chosen - log_totals).tolist()


def _inverted(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """For each row of weights [B, V] the first place whose cumulated weight exceeds the row's share of their sum."""
    rows, size = weights.shape
    whole = size // _BLOCK * _BLOCK
    sums = weights[:, :whole].reshape(rows, -1, _BLOCK).sum(axis=-1, dtype=np.float64)
    if whole < size:
        sums = np.concatenate([sums, weights[:, whole:].sum(axis=-1, dtype=np.float64)[:, None]], axis=-1)
    ends = sums.cumsum(axis=-1)
    targets = np.minimum(uniforms * ends[:, -1], np.nextafter(ends[:, -1], 0))
    tokens = np.empty(rows, dtype=np.int64)
    for row in range(rows):
        block = int(np.searchsorted(ends[row], targets[row], side="right"))
        before = ends[row, block - 1] if block else 0.0
        inside = weights[row, block * _BLOCK : (block + 1) * _BLOCK]
        place = int(np.searchsorted(inside.cumsum(dtype=np.float64), targets[row] - before, side="right"))
        if place == len(inside):  # by rounding: the block's sum was added up in another order
            place = int(np.flatnonzero(inside)[-1])
        tokens[row] = block * _BLOCK + place
    return tokens


def _cut(weights: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The weights with those outside of top-k and top-p set to 0."""
    if sampling.top_k == 0 and sampling.top_p == 1:
        return weights
    order = np.argsort(-weights, axis=-1, kind="stable")
    ordered = np.take_along_axis(weights, order, axis=-1)
    if sampling.top_k > 0:
        ordered[:, sampling.top_k :] = 0
    above = ordered.cumsum(axis=-1, dtype=np.float64) - ordered  # weight of all that is likelier
    ordered[above >= sampling.top_p * ordered.sum(axis=-1, dtype=np.float64, keepdims=True)] = 0
    kept = np.empty_like(weights)
    np.put_along_axis(kept, order, ordered, axis=-1)
    return kept


def draw_by_mlx(logits: mx.array, sampling: Sampling, uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """Draw on the device that the logits are on."""
    scaled = logits.astype(mx.float32)
    if sampling.temperature not in (0.0, 1.0):
        scaled = scaled / sampling.temperature
    if sampling.temperature == 0:
        tokens = mx.argmax(scaled, axis=-1)
    else:
        cumulated = mx.cumsum(_cut_by_mlx(mx.softmax(scaled, axis=-1), sampling), axis=-1)
        targets = mx.array(np.asarray(uniforms, dtype=np.float32))[:, None] * cumulated[:, -1:]
        last = mx.argmax(cumulated >= cumulated[:, -1:], axis=-1)  # the last token with any weight
        tokens = mx.minimum(mx.sum(cumulated <= targets, axis=-1), last)
    chosen = mx.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0] - mx.logsumexp(scaled, axis=-1)
    mx.eval(tokens, chosen)
    return np.array(tokens).tolist(), np.array(chosen).tolist()


def _cut_by_mlx(weights: mx.array, sampling: Sampling) -> mx.array:
    if sampling.top_k == 0 and sampling.top_p == 1:
        return weights
    order = mx.argsort(-weights, axis=-1)
    ordered = mx.take_along_axis(weights, order, axis=-1)
    if sampling.top_k > 0:
        ordered = mx.where(mx.arange(weights.shape[-1]) < sampling.top_k, ordered, 0)
    above = mx.cumsum(ordered, axis=-1) - ordered
    ordered = mx.where(above < sampling.top_p * mx.sum(ordered, axis=-1, keepdims=True), ordered, 0)
    return mx.put_along_axis(mx.zeros_like(weights), order, ordered, axis=-1)


def draw_for_device() -> Draw:
    """The implementation for the device that is used by default."""
    return draw_by_numpy if mx.default_device() == mx.cpu else draw_by_mlx
