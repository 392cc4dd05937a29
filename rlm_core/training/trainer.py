"""Optimizer steps: one policy, one loss, one minibatch after the other, and what each step did."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map, tree_unflatten

from rlm_core import progress
from rlm_core.config import TrainSection
from rlm_core.errors import AdapterError, StageFailed, one_line
from rlm_core.files import write_jsonl
from rlm_core.model.policy import Policy
from rlm_core.model.tensors import flat, read_tensors, write_tensors
from rlm_core.records import Record, Share
from rlm_core.state.run import Run
from rlm_core.training import rescoring
from rlm_core.training.batches import Batch, Experience, MicroBatch, OfOneKind, Rehearsed
from rlm_core.training.checkpoint import read_checkpoint, write_checkpoint
from rlm_core.training.losses import Divisors, ScoredAnswers, importance_weights, k3_divergence

_log = logging.getLogger(__name__)

_MAX_BAD_STEPS = 3
"""Non-finite steps in a row after which training stops."""


class StepMetrics(Record):
    """What one optimizer step did. Means are over the step's rollouts, or over their tokens; what was rehearsed is in
    the loss, the gradient and what is named so, and in nothing else."""

    step: int
    loss: float
    grad_norm: float
    """Before it was cut to `max_grad_norm`."""
    applied: bool
    """False when the loss or gradient was not finite and the step was skipped."""
    rollouts: int
    tokens: int
    reward_mean: float
    """As the verifier paid; a penalty for length is not in it."""
    reward_std: float
    pass_rate: Share
    useful_share: Share
    """Groups with a spread of rewards among the iteration's; the others are in no step, so the means above are not
    those of the iteration."""
    answer_length_mean: float
    """Tokens."""
    truncated_share: Share
    """Answers that the limit on tokens cut off."""
    kl: float
    """Mean k3 divergence from the policy without its adapter, nats per token; 0 when `kl_weight` is 0."""
    entropy: float
    """Mean of -logp over the sampled tokens at the sampling temperature, nats per token: an estimate of the policy's
    entropy that costs nothing. Unbiased for answers of the policy itself, so in the first step, as far as nothing was
    selected: top-p, top-k and the leaving out of useless groups select. Later steps compare the moved policy with
    answers of the old one (a cross entropy)."""
    clip_fraction: float
    """Share of tokens on which the method's clip had an effect; 0 with methods that have none."""
    mismatch: float
    """Mean absolute difference between sampler's and trainer's log-probabilities, nats, of the answers that were scored
    again: one of the step's or all."""
    rehearsed: int = 0
    """Earlier answers in the step, besides its rollouts."""
    rehearsed_tokens: int = 0
    rehearsal_loss: float | None = None
    """Mean -logp over the tokens of the rehearsed answers, nats per token: their cross entropy."""
    duration_s: float
    tokens_per_s: float
    """Those of rehearsed answers included."""
    peak_memory_gb: float


LossFn = Callable[[Policy, Batch, Divisors], tuple[mx.array, dict[str, mx.array]]]
"""From (policy, micro-batch, divisors of its minibatch) to the micro-batch's part of the loss and summed figures."""


def policy_loss(section: TrainSection, temperature: float) -> LossFn:
    """The method's loss with truncated importance correction and, if weighted, a KL penalty; see `losses`.

    A rehearsed answer's tokens have the loss -logp: it is one more answer of the minibatch, with advantage 1.
    """
    method = section.settled_method()

    def loss_fn(policy: Policy, batch: Batch, divisors: Divisors) -> tuple[mx.array, dict[str, mx.array]]:
        if isinstance(batch, Rehearsed):
            losses = -policy.answer_logprobs(batch.prompt, batch.answer, temperature)
            return method.aggregate(losses, mx.ones_like(losses), divisors), {"rehearsal_loss": mx.sum(losses)}
        logprobs = policy.answer_logprobs(batch.prompt, batch.answers, temperature)
        assert batch.old_logprobs is not None
        scored = ScoredAnswers(logprobs, batch.old_logprobs, batch.mask, batch.advantages)
        losses, clipped = method.token_losses(scored, method.clip)
        losses = losses * importance_weights(batch.old_logprobs, batch.behaviour_logprobs, section.importance_cap)
        kl = mx.zeros_like(losses)
        if batch.reference_logprobs is not None:
            kl = k3_divergence(logprobs, batch.reference_logprobs)
            losses = losses + section.kl_weight * kl
        figures = {"kl": kl, "entropy": -logprobs, "clip_fraction": clipped}
        sums = {key: mx.sum(value * batch.mask) for key, value in figures.items()}
        return method.aggregate(losses, batch.mask, divisors), sums

    return loss_fn


class Trainer:
    """Optimizer steps over minibatches, each followed by a checkpoint."""

    def __init__(self, policy: Policy, section: TrainSection, experience: Experience, directory: Path, identity: str):
        self.policy = policy
        self.section = section
        self.experience = experience
        self.files = Run(directory)
        self.identity = identity
        """Digest of all that decides the result; a checkpoint of something else is not continued."""
        self.optimizer = optim.AdamW(
            learning_rate=_schedule(section), betas=list(section.betas), weight_decay=section.weight_decay
        )
        self.optimizer.init(policy.model.trainable_parameters())

    def run(self, steps: Sequence[Sequence[Batch]]) -> list[StepMetrics]:
        """Take every step that the checkpoint does not already hold; the metrics of all of them."""
        # Never train(): log-probabilities are compared all along, and dropout would make them differ by itself.
        self.policy.model.eval()
        steps = self.scored(steps)
        metrics = self._resume()
        if metrics:
            write_jsonl(self.files.metrics, metrics)
        loss_fn = policy_loss(self.section, self.experience.temperature)
        for number in range(len(metrics), len(steps)):
            metrics.append(self._step(number, steps[number], loss_fn))
            write_jsonl(self.files.metrics, metrics)
            self._check(metrics)
            self._write_checkpoint(metrics)
            progress.report(
                "train",
                number + 1,
                len(steps),
                tokens=sum(step.tokens for step in metrics),
                seconds=sum(step.duration_s for step in metrics),
            )
        return metrics

    def scored(self, steps: Sequence[Sequence[OfOneKind]]) -> list[list[OfOneKind]]:
        """The same batches with what the policies before training make of their answers; see `rescoring`."""
        section = self.section
        return rescoring.scored(
            self.policy, steps, self.experience.temperature, section.rescore_above, with_base=section.kl_weight > 0
        )

    def divisors(self, step: Sequence[Batch]) -> Divisors:
        """What the losses of this minibatch are divided by; rehearsed answers count like others."""
        lengths = [len(sample.rollout.tokens) for batch in _rollouts_of(step) for sample in batch.samples]
        lengths += [batch.answer.shape[1] for batch in step if isinstance(batch, Rehearsed)]
        return Divisors(sum(lengths), len(lengths), self.experience.max_tokens)

    def _step(self, number: int, step: Sequence[Batch], loss_fn: LossFn) -> StepMetrics:
        started = time.monotonic()
        divisors = self.divisors(step)
        loss, gradient, figures = self.accumulate(step, loss_fn, divisors)
        gradient, norm = optim.clip_grad_norm(gradient, self.section.max_grad_norm)
        applied = bool(np.isfinite(loss) and np.isfinite(norm.item()))
        if applied:
            self.optimizer.update(self.policy.model, gradient)
            mx.eval(self.policy.model.trainable_parameters(), self.optimizer.state)
        duration = time.monotonic() - started
        return StepMetrics(
            step=number + 1,
            loss=loss,
            grad_norm=norm.item(),
            applied=applied,
            useful_share=self.experience.useful_share,
            mismatch=rescoring.mismatch(step),
            duration_s=duration,
            tokens_per_s=divisors.tokens / duration,
            peak_memory_gb=mx.get_peak_memory() / 1e9,
            **_means(step, figures),
            **_figures_of_samples(_rollouts_of(step)),
        )

    def accumulate(
        self, step: Sequence[Batch], loss_fn: LossFn, divisors: Divisors
    ) -> tuple[float, Any, dict[str, float]]:
        """Loss, gradient and summed figures of a minibatch, one micro-batch in memory at a time."""
        value_and_grad = nn.value_and_grad(self.policy.model, lambda batch: loss_fn(self.policy, batch, divisors))
        total, gradient, figures = 0.0, None, defaultdict[str, float](float)
        for batch in step:
            (loss, sums), part = value_and_grad(batch)
            gradient = part if gradient is None else tree_map(mx.add, gradient, part)
            mx.eval(loss, gradient, sums)
            total += loss.item()
            for key, value in sums.items():
                figures[key] += value.item()
            progress.check("train")
        return total, gradient, dict(figures)

    def _check(self, metrics: Sequence[StepMetrics]) -> None:
        last = metrics[-_MAX_BAD_STEPS:]
        if len(last) == _MAX_BAD_STEPS and not any(step.applied for step in last):
            raise StageFailed(
                f"train: loss or gradient not finite in {_MAX_BAD_STEPS} steps in a row; "
                "a lower train.learning_rate may help"
            )

    # ------------------------------------------------------------------------------------------------- state on disk

    def _write_checkpoint(self, metrics: Sequence[StepMetrics]) -> None:
        arrays = {f"weights.{name}": value for name, value in self.policy.trainable().items()}
        arrays |= {f"optimizer.{name}": value for name, value in flat(self.optimizer.state).items()}
        information = {"identity": self.identity, "metrics": "\n".join(step.model_dump_json() for step in metrics)}
        write_checkpoint(self.files.checkpoint, arrays, information)

    def _resume(self) -> list[StepMetrics]:
        """Take weights and optimizer from the checkpoint, if there is one of this very training; its metrics."""
        path = self.files.checkpoint
        if not path.is_file():
            return []
        try:
            arrays, information = read_checkpoint(path)
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("train starts over: %s is damaged: %s", path, one_line(error))
            return []
        if information["identity"] != self.identity:
            _log.info("train starts over: %s is of other training", path)
            return []
        prefixed: dict[str, dict[str, mx.array]] = {"weights": {}, "optimizer": {}}
        for name, value in arrays.items():
            kind, _, rest = name.partition(".")
            prefixed[kind][rest] = value
        self.policy.model.load_weights(list(prefixed["weights"].items()), strict=False)
        self.optimizer.state = tree_unflatten(list(prefixed["optimizer"].items()))
        return [StepMetrics.model_validate_json(line) for line in information["metrics"].splitlines()]

    def write_optimizer(self, path: Path) -> None:
        """Write the optimizer's state, for the iteration that trains on from this candidate."""
        write_tensors(path, flat(self.optimizer.state))

    def read_optimizer(self, path: Path) -> None:
        """Go on with an earlier optimizer's state; an adapter from elsewhere has none and starts afresh.

        Raises:
            AdapterError: the file is damaged.
        """
        if not path.is_file():
            return
        try:
            state = read_tensors(path)
        except (RuntimeError, ValueError) as error:
            raise AdapterError(f"{path} is damaged; without it, training starts with a fresh optimizer") from error
        state.pop("learning_rate", None)
        self.optimizer.state = {**self.optimizer.state, **tree_unflatten(list(state.items()))}


def _rollouts_of(step: Sequence[Batch]) -> list[MicroBatch]:
    return [batch for batch in step if isinstance(batch, MicroBatch)]


def _means(step: Sequence[Batch], sums: dict[str, float]) -> dict[str, Any]:
    """Figures summed over tokens as means: of the rehearsed answers' tokens, or of the rollouts'."""
    rollouts = sum(len(sample.rollout.tokens) for batch in _rollouts_of(step) for sample in batch.samples)
    lengths = [batch.answer.shape[1] for batch in step if isinstance(batch, Rehearsed)]
    tokens = {"rehearsal_loss": sum(lengths)}
    means = {name: value / tokens.get(name, rollouts) for name, value in sums.items()}
    return {**means, "rehearsed": len(lengths), "rehearsed_tokens": sum(lengths)}


def _figures_of_samples(step: Sequence[MicroBatch]) -> dict[str, Any]:
    """The part of a step's metrics that does not depend on the policy."""
    samples = [sample for batch in step for sample in batch.samples]
    rewards = [sample.verdict.reward for sample in samples]
    lengths = [len(sample.rollout.tokens) for sample in samples]
    return {
        "rollouts": len(samples),
        "tokens": sum(lengths),
        "reward_mean": float(np.mean(rewards)),
        "reward_std": float(np.std(rewards)),
        "pass_rate": float(np.mean([sample.verdict.passed for sample in samples])),
        "answer_length_mean": float(np.mean(lengths)),
        "truncated_share": float(np.mean([sample.rollout.truncated for sample in samples])),
    }


def _schedule(section: TrainSection) -> Any:
    if section.warmup_steps == 0:
        return section.learning_rate
    return optim.linear_schedule(0.0, section.learning_rate, section.warmup_steps)
