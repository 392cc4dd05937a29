"""From judged rollouts to what the trainer is fed.

Axes: G rollouts of one problem, B rollouts in a micro-batch (all of one group, as they share the prompt), T tokens.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, final

import mlx.core as mx
import numpy as np

from rlm_core.config import TrainSection
from rlm_core.records import Rollout, Verdict
from rlm_core.seeds import derive_seed
from rlm_core.training.methods import Method


@dataclass(frozen=True)
class Sample:
    """A rollout with its verdict and how much better than its group it was."""

    rollout: Rollout
    verdict: Verdict
    advantage: float


@dataclass(frozen=True)
class Experience:
    """An iteration's judged groups, and how they were sampled."""

    groups: Sequence[list[Sample]]
    temperature: float
    max_tokens: int
    """The limit on an answer's tokens."""

    @cached_property
    def useful(self) -> list[list[Sample]]:
        """The groups that have something to teach: those with a spread of rewards."""
        return [group for group in self.groups if any(sample.advantage for sample in group)]

    @property
    def useful_share(self) -> float:
        return len(self.useful) / max(1, len(self.groups))

    @property
    def reward_mean(self) -> float:
        """Of all judged rollouts, those of useless groups among them."""
        rewards = [sample.verdict.reward for group in self.groups for sample in group]
        return float(np.mean(rewards)) if rewards else 0.0


@final
@dataclass(frozen=True)
class MicroBatch:
    """Rollouts of one problem as arrays: `prompt` int [1, P]; the others [B, T], padded on the right."""

    prompt: mx.array
    answers: mx.array
    mask: mx.array
    behaviour_logprobs: mx.array
    advantages: mx.array
    """float32 [B]"""
    samples: tuple[Sample, ...]
    old_logprobs: mx.array | None = None
    reference_logprobs: mx.array | None = None
    mismatch: float = 0.0
    """Sum of the differences between sampler's and trainer's log-probabilities over the `compared` tokens, nats."""
    compared: int = 0


@final
@dataclass(frozen=True)
class Rehearsed:
    """One earlier answer as arrays: `prompt` int [1, P], `answer` int [1, T], its end token included."""

    prompt: mx.array
    answer: mx.array


Batch = MicroBatch | Rehearsed
"""What is in memory at once."""

OfOneKind = TypeVar("OfOneKind", MicroBatch, Rehearsed, Batch)
"""Where batches go in and come out: those of one kind stay of that kind."""


def experience_from(
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    method: Method,
    temperature: float,
    max_tokens: int,
    shuffled_by: int | None = None,
) -> Experience:
    """Rollouts by problem, with verdicts and advantages; those that could not be judged are left out.

    Args:
        shuffled_by: a seed by which each group's advantages are dealt to its rollouts at random, for a control
            experiment; None leaves them where they were earned.
    """
    by_rollout = {verdict.rollout_id: verdict for verdict in verdicts}
    grouped: dict[str, list[tuple[Rollout, Verdict]]] = defaultdict(list)
    for rollout in rollouts:
        verdict = by_rollout.get(rollout.id)
        if verdict is not None and verdict.judged:
            grouped[rollout.problem_id].append((rollout, verdict))
    groups: list[list[Sample]] = []
    for members in grouped.values():
        rewards, lengths = zip(*((verdict.reward, len(rollout.tokens)) for rollout, verdict in members), strict=True)
        advantages = method.group_advantages(rewards, lengths, max_tokens)
        if shuffled_by is not None:
            advantages = np.random.default_rng(derive_seed(shuffled_by, len(groups))).permutation(advantages)
        groups.append([Sample(*member, float(a)) for member, a in zip(members, advantages, strict=True)])
    return Experience(groups, temperature, max_tokens)


def minibatches(groups: Sequence[list[Sample]], section: TrainSection, seed: int) -> list[list[MicroBatch]]:
    """The data of all optimizer steps, in an order that the seed decides.

    Groups are shuffled and cut into micro-batches; a minibatch takes micro-batches until it has enough rollouts.
    """
    steps = []
    for epoch in range(section.epochs):
        order = np.random.default_rng(derive_seed(seed, "order", epoch)).permutation(len(groups))
        step: list[MicroBatch] = []
        rollouts = 0
        for index in order:
            group = sorted(groups[index], key=lambda sample: len(sample.rollout.tokens))
            for start in range(0, len(group), section.micro_batch):
                samples = group[start : start + section.micro_batch]
                step.append(micro_batch(samples))
                rollouts += len(samples)
            if rollouts >= section.minibatch:
                steps.append(step)
                step, rollouts = [], 0
        if step:
            steps.append(step)
    return steps


def with_rehearsed(steps: Sequence[list[MicroBatch]], rehearsed: Sequence[Rehearsed]) -> list[list[Batch]]:
    """The minibatches with earlier answers added, to each in proportion to its rollouts, as nearly as they divide."""
    rollouts = np.cumsum([sum(len(batch.samples) for batch in step) for step in steps])
    ends = [round(len(rehearsed) * up_to / rollouts[-1]) for up_to in rollouts]
    return [[*step, *rehearsed[start:end]] for step, start, end in zip(steps, [0, *ends[:-1]], ends, strict=True)]


def micro_batch(samples: Sequence[Sample], extra_padding: int = 0) -> MicroBatch:
    """Rollouts of one problem as arrays, padded to the longest of them and `extra_padding` more."""
    rollouts = [sample.rollout for sample in samples]
    length = max(len(rollout.tokens) for rollout in rollouts) + extra_padding

    def padded(rows: list[Sequence[float]]) -> np.ndarray:
        return np.array([[*row, *[0] * (length - len(row))] for row in rows])

    return MicroBatch(
        prompt=mx.array([rollouts[0].prompt_tokens]),
        answers=mx.array(padded([rollout.tokens for rollout in rollouts]).astype(np.int32)),
        mask=mx.array(padded([[1.0] * len(rollout.tokens) for rollout in rollouts]).astype(np.float32)),
        behaviour_logprobs=mx.array(padded([rollout.logprobs for rollout in rollouts]).astype(np.float32)),
        advantages=mx.array(np.array([sample.advantage for sample in samples], dtype=np.float32)),
        samples=tuple(samples),
    )
