"""Prompts as keys and values: what all of them begin with is computed once, and the rest of several at once.

A matrix product of a few rows reads as many weights as one of hundreds, so prompts of some 70 tokens one by one took a
third of an exam's time on a CPU.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import mlx.core as mx
import mlx.nn as nn

_TOKENS_AT_ONCE = 512
"""Padding included; more are no faster on a CPU, and attention takes memory for each pair of a row's tokens."""


class Prefill:
    """Computes prompts of one call of `Decoder.run`. A prompt's last token is left out: it is its rows' first input."""

    def __init__(
        self, model: nn.Module, make_cache: Callable[[], list[Any]], prompts: Sequence[tuple[int, ...]]
    ) -> None:
        """Compute what all prompts have in common.

        Args:
            model, make_cache: as in `Decoder`.
            prompts: all that will be asked for, of one token at least.
        """
        self._model = model
        beginnings = zip(*(prompt[:-1] for prompt in prompts), strict=False)
        self._shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, beginnings))
        self._head = make_cache()
        self._can_pad = all(layer.is_trimmable() for layer in self._head)
        if self._shared:
            self._model(mx.array([prompts[0][: self._shared]]), cache=self._head)
            _evaluate(self._head)

    def caches(self, prompts: Sequence[tuple[int, ...]]) -> list[Any]:
        """For each layer a cache with a row for each prompt; there is at least one."""
        joined: list[Any] = []
        for some in self._at_once([prompt[self._shared : -1] for prompt in prompts]):
            joined = join(joined, self._rows(some))
        return joined

    def _at_once(self, rests: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        some: list[tuple[int, ...]] = []
        for rest in rests:
            if some and not self._go_together([*some, rest]):
                yield some
                some = []
            some.append(rest)
        yield some

    def _go_together(self, rests: Sequence[tuple[int, ...]]) -> bool:
        """Whether they are few enough, and of one length where padding is not allowed.

        Keys and values of padding can be taken back. What a recurrent layer has read stays in its state: many of
        mlx-lm's architectures with such layers do not ask their cache for lengths (jamba, recurrent_gemma, rwkv7).
        """
        lengths = [len(rest) for rest in rests]
        even = len(set(lengths)) == 1
        return (even or self._can_pad) and max(lengths) * len(lengths) <= _TOKENS_AT_ONCE

    def _rows(self, rests: Sequence[tuple[int, ...]]) -> list[Any]:
        """Rows with the common head, each followed by its own rest."""
        rows = [layer.merge([layer] * len(rests)) for layer in self._head]
        width = max(map(len, rests))
        if not width:
            return rows
        if width == 1 and () in rests:
            width = 2  # mlx-lm's cache of a window takes a single column for a token that is decoded
        padding = [width - len(rest) for rest in rests]
        for layer in rows if any(padding) else ():
            layer.prepare(lengths=[len(rest) for rest in rests], right_padding=padding)
        padded = [[*rest, *[0] * missing] for rest, missing in zip(rests, padding, strict=True)]
        self._model(mx.array(padded), cache=rows)
        for layer in rows:
            layer.finalize()
        _evaluate(rows)
        return rows


def join(rows: list[Any], more: list[Any]) -> list[Any]:
    """The caches with `more` rows at their end; every key and value is copied for it."""
    if not rows:
        return more
    for layer, other in zip(rows, more, strict=True):
        layer.extend(other)
    return rows


def _evaluate(layers: Sequence[Any]) -> None:
    mx.eval([layer.state for layer in layers])
