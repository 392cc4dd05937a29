"""What the policies before training make of the answers that it is about to be trained on.

The sampler has written down how probable each of its tokens was. The trainer computes the same numbers with other
kernels and batches; a ratio of new to old probability is right when both are the trainer's own. Where the two ways
agree anyway, as they do in 32 bits, a forward pass over everything would only repeat what is known, and it is a third
of the time of training. So one answer of every step is scored again; if the steps' mean differences stay within a
limit, the sampler's numbers are used, else everything is scored again.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np

from rlm_core import progress
from rlm_core.model.loading import base_logprobs
from rlm_core.model.policy import BaseLogprobs, Policy
from rlm_core.training.batches import Batch, MicroBatch, OfOneKind

_log = logging.getLogger(__name__)

Step = Sequence[Batch]
"""The batches of one optimizer step."""


def scored(
    policy: Policy, steps: Sequence[Sequence[OfOneKind]], temperature: float, limit: float, with_base: bool
) -> list[list[OfOneKind]]:
    """The same batches with the log-probabilities of their answers before training.

    All of them before the first step, so that a second copy of the base model is in memory only until then. Rehearsed
    answers need nothing.

    Args:
        policy: not trained yet.
        temperature: that the answers were sampled at.
        limit: mean difference between sampler and trainer, in nats, up to which the sampler's numbers are used.
        with_base: whether the base policy scores the answers too, for the KL penalty.
    """
    checked = [_check(policy, step, temperature) for step in steps] if limit > 0 else []
    worst = max((mismatch(step) for step in checked), default=float("inf"))
    if worst > limit:
        if checked:
            _log.warning(
                "sampler and trainer differ by %.2g nats (train.rescore_above is %.2g): all answers are scored again",
                worst,
                limit,
            )
        checked = [[_rescored(policy, batch, temperature) for batch in step] for step in steps]
    if not with_base:
        return checked
    with base_logprobs(policy) as base:
        return [[_compared(base, batch, temperature) for batch in step] for step in checked]


def mismatch(step: Step) -> float:
    """Mean absolute difference over the step's tokens that were scored again, in nats."""
    rollouts = [batch for batch in step if isinstance(batch, MicroBatch)]
    compared = sum(batch.compared for batch in rollouts)
    return sum(batch.mismatch for batch in rollouts) / compared if compared else 0.0


def _check(policy: Policy, step: Sequence[OfOneKind], temperature: float) -> list[OfOneKind]:
    """The step with the sampler's log-probabilities; those of one answer are compared with the trainer's."""
    batches = list(step)
    checked = False
    for index, batch in enumerate(batches):
        if isinstance(batch, MicroBatch):
            batch = replace(batch, old_logprobs=batch.behaviour_logprobs)
            batches[index] = batch if checked else _measured_on_one(policy, batch, temperature)
            checked = True
    return batches


def _measured_on_one(policy: Policy, batch: MicroBatch, temperature: float) -> MicroBatch:
    """The batch, compared on its longest answer."""
    row = int(np.argmax(np.array(batch.mask).sum(axis=-1)))
    rows = slice(row, row + 1)
    found = policy.answer_logprobs(batch.prompt, batch.answers[rows], temperature, differentiable=False)
    progress.check("train")
    return _measured(batch, found, rows)


def _rescored(policy: Policy, batch: OfOneKind, temperature: float) -> OfOneKind:
    if not isinstance(batch, MicroBatch):
        return batch
    old = policy.answer_logprobs(batch.prompt, batch.answers, temperature, differentiable=False)
    progress.check("train")
    return _measured(replace(batch, old_logprobs=old), old, slice(None))


def _measured(batch: MicroBatch, found: mx.array, rows: slice) -> MicroBatch:
    """The batch with how far the trainer's log-probabilities of those rows are from the sampler's."""
    mask = np.array(batch.mask[rows])
    difference = np.abs(np.array(found) - np.array(batch.behaviour_logprobs[rows])) * mask
    return replace(batch, mismatch=float(difference.sum()), compared=int(mask.sum()))


def _compared(base: BaseLogprobs, batch: OfOneKind, temperature: float) -> OfOneKind:
    if not isinstance(batch, MicroBatch):
        return batch
    reference = base(batch.prompt, batch.answers, temperature)
    mx.eval(reference)
    progress.check("train")
    return replace(batch, reference_logprobs=reference)
