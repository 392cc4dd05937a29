"""Answers to many prompts at once: rows of a batch that come and go.

Axes: B rows.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rlm_core.model.draws import Sampling, draw_for_device
from rlm_core.model.prefill import Prefill, join

_WORTH_SHRINKING = 0.25
"""Share of rows that have ended from which on copying the others together pays."""

FinishReason = Literal["stop", "code", "length"]


@dataclass(frozen=True)
class Request:
    """A prompt to be answered once, with the seed that decides every draw of this answer."""

    prompt_tokens: tuple[int, ...]
    seed: int
    only_code_counts: bool = True
    """Whether the answer may be ended after its code."""


@dataclass
class Completion:
    """One sampled answer; `logprobs` as in `records.Rollout`."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "length"


@dataclass
class _Row:
    """An answer that is being written."""

    request: Request
    completion: Completion
    uniforms: list[float]
    """The random number of each of its draws."""
    ended: bool = False

    @property
    def last_token(self) -> int:
        return self.completion.tokens[-1] if self.completion.tokens else self.request.prompt_tokens[-1]

    @property
    def uniform(self) -> float:
        """For the draw that is next; of an ended row any will do."""
        return self.uniforms[min(len(self.completion.tokens), len(self.uniforms) - 1)]


class Decoder:
    """Writes answers with one model."""

    def __init__(
        self,
        model: nn.Module,
        make_cache: Callable[[], list[Any]],
        sampling: Sampling,
        batch_size: int,
        end: Callable[[Request, Sequence[int]], FinishReason | None],
    ) -> None:
        """Prepare to decode.

        Args:
            model: from tokens [B, T] and a cache to logits [B, T, V].
            make_cache: an empty cache for one row: for each layer one of mlx-lm's, which can be merged, padded and
                filtered.
            sampling: the same for all answers.
            batch_size: rows at once.
            end: why an answer ends with these tokens, or None; the limit on tokens is seen to here.
        """
        self._model = model
        self._make_cache = make_cache
        self._sampling = sampling
        self._batch_size = batch_size
        self._end = end
        self._draw = draw_for_device()
        self._rows: list[_Row] = []
        self._cache: list[Any] = []

    def run(self, requests: Sequence[Request], on_tokens: Callable[[int, int], None]) -> list[Completion]:
        """Answer every request, in their order; see `Policy.sample`."""
        completions = [Completion() for _ in requests]
        waiting = deque(
            _Row(request, completion, _uniforms(request.seed, self._sampling.max_tokens))
            for request, completion in zip(requests, completions, strict=True)
        )
        prefill = Prefill(self._model, self._make_cache, [request.prompt_tokens for request in requests])
        self._admit(waiting, prefill)
        while self._rows:
            on_tokens(*self._step())
            self._shrink()
            self._admit(waiting, prefill)
        return completions

    def _shrink(self) -> None:
        """Drop rows that have ended, when that is worth the copying: it moves every key and value of the others."""
        running = [index for index, row in enumerate(self._rows) if not row.ended]
        ended = len(self._rows) - len(running)
        if not running:
            self._rows, self._cache = [], []
        elif ended >= _WORTH_SHRINKING * len(self._rows):
            for cache in self._cache:
                cache.filter(running)
            self._rows = [self._rows[index] for index in running]

    def _admit(self, waiting: deque[_Row], prefill: Prefill) -> None:
        """Take in waiting rows; of those with equal prompts that follow each other, the prompt is computed once."""
        free = self._batch_size - len(self._rows)
        rows = [waiting.popleft() for _ in range(min(free, len(waiting)))]
        if not rows:
            return
        groups = [(prompt, len(list(same))) for prompt, same in groupby(row.request.prompt_tokens for row in rows)]
        cache = prefill.caches([prompt for prompt, _ in groups])
        if len(groups) < len(rows):
            of_rows = [index for index, (_, size) in enumerate(groups) for _ in range(size)]
            for layer in cache:
                layer.filter(of_rows)
        self._cache = join(self._cache, cache)
        self._rows += rows

    def _step(self) -> tuple[int, int]:
        """Write one token more of every answer; how many were written and how many answers ended."""
        inputs = mx.array([[row.last_token] for row in self._rows])
        logits = self._model(inputs, cache=self._cache)[:, -1]
        drawn = self._draw(logits, self._sampling, [row.uniform for row in self._rows])
        mx.eval([layer.state for layer in self._cache])
        written = ended = 0
        for row, token, logprob in zip(self._rows, *drawn, strict=True):
            if row.ended:
                continue
            row.completion.tokens.append(token)
            row.completion.logprobs.append(logprob)
            written += 1
            reason = self._end(row.request, row.completion.tokens)
            if reason is not None or len(row.completion.tokens) == self._sampling.max_tokens:
                row.completion.finish_reason = reason or "length"
                row.ended = True
                ended += 1
        return written, ended


def _uniforms(seed: int, count: int) -> list[float]:
    uniforms: list[float] = np.random.default_rng(seed).random(count).tolist()
    return uniforms
