"""A prompt that runs through the model once, for several answers: mlx-lm's models made to do so."""

import sys
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base

from rlm_core.cpu.attention import attend

_HOOK = "scaled_dot_product_attention"
"""What mlx-lm's architectures call; each module has the name for itself."""


class PromptCache:
    """Keys and values of one prompt, kept in the graph, and broadcast to the answers that follow it.

    A cache as mlx-lm's models use one: the first call is the prompt's, each further one that of some answers.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.prompt: tuple[mx.array, mx.array] | None = None
        """Keys and values [1, K, P, D]."""
        self.answers: tuple[mx.array, mx.array] | None = None
        """Keys and values [B, K, T, D] of what runs through the model now; None while that is the prompt."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """All that is to be attended to. What nobody looks at is never computed: MLX's arrays are lazy."""
        if self.prompt is None:
            self.prompt, self.offset = (keys, values), keys.shape[2]
            return self.prompt
        self.answers = keys, values
        return _joined(self.prompt[0], keys), _joined(self.prompt[1], values)

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> Any:
        if return_array or window_size:
            return base.create_causal_mask(length, self.offset, window_size=window_size)
        return "causal"


def _joined(prompt: mx.array, answers: mx.array) -> mx.array:
    """[1, K, P, D] before each row of [B, K, T, D]."""
    return mx.concatenate([mx.broadcast_to(prompt, (answers.shape[0], *prompt.shape[1:])), answers], axis=2)


def use_shared_attention(model: nn.Module) -> bool:
    """Let the model's architecture attend to a `PromptCache` by `attend`, and to all else as before.

    Returns:
        Whether it does. False when MLX's device is not a CPU, or when the architecture has attention of its own.
    """
    if mx.default_device() != mx.cpu:
        return False
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    known = (base.scaled_dot_product_attention, _attention)
    hooked = [file for file in files if getattr(file, _HOOK, None) in known]
    for file in hooked:
        setattr(file, _HOOK, _attention)
    return bool(hooked)


def _attention(
    queries: mx.array, keys: mx.array, values: mx.array, cache: Any, scale: float, mask: Any, sinks: Any = None
) -> mx.array:
    shared = isinstance(cache, PromptCache) and cache.answers is not None
    if shared and isinstance(mask, str) and sinks is None:
        return attend(queries, cache.prompt, cache.answers, scale)
    return base.scaled_dot_product_attention(queries, keys, values, cache, scale, mask, sinks)
