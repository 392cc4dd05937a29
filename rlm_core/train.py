"""Train a candidate from the incumbent on an iteration's judged rollouts.

Axes: G rollouts of one problem, B rollouts in a micro-batch (all of one group, as they share the prompt), T tokens.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from rlm_core import progress
from rlm_core.advantages import group_advantages
from rlm_core.config import TrainSection
from rlm_core.errors import AdapterError, StageFailed
from rlm_core.files import digest, read_jsonl, write_atomic, write_jsonl, write_record
from rlm_core.losses import ClipRange, grpo_token_losses, importance_weights, k3_divergence, token_mean
from rlm_core.policy import Policy, device_policy_to_train
from rlm_core.records import AdapterRef, FileRef, PolicyRef, Record, Rollout, StageResult, Verdict
from rlm_core.seeds import derive_seed
from rlm_core.verify import require_few_faults

OPTIMIZER_STATE = "optimizer.safetensors"
CHECKPOINT = "checkpoint.safetensors"

_MAX_BAD_STEPS = 3
"""Non-finite steps in a row after which training stops."""


class StepMetrics(Record):
    """What one optimizer step did."""

    step: int
    loss: float
    grad_norm: float
    applied: bool
    """False when the loss or gradient was not finite and the step was skipped."""
    rollouts: int
    tokens: int
    reward_mean: float
    kl: float
    """Mean k3 divergence from the policy without its adapter, nats per token; 0 when `kl_weight` is 0."""
    clip_fraction: float
    mismatch: float
    """Mean absolute difference between sampler's and trainer's log-probabilities, nats."""
    duration_s: float
    tokens_per_s: float
    peak_memory_gb: float


class TrainReport(Record):
    """The candidate and how it came about. `candidate` is None when no group had a spread of rewards to learn from."""

    candidate: AdapterRef | None
    steps: int
    groups: int
    useful_groups: int
    reward_mean: float
    tokens: int
    duration_s: float


@dataclass(frozen=True)
class Sample:
    """A rollout with what it was paid and how much better than its group that is."""

    rollout: Rollout
    reward: float
    advantage: float


@dataclass(frozen=True)
class MicroBatch:
    """Rollouts of one problem as arrays: `prompt` int [1, P]; the others [B, T], padded on the right."""

    prompt: mx.array
    answers: mx.array
    mask: mx.array
    behaviour_logprobs: mx.array
    advantages: mx.array
    """float32 [B]"""
    rewards: tuple[float, ...]
    old_logprobs: mx.array | None = None
    reference_logprobs: mx.array | None = None


LossFn = Callable[[Policy, MicroBatch, int], tuple[mx.array, dict[str, mx.array]]]
"""From (policy, micro-batch, tokens in the minibatch) to the micro-batch's part of the loss and its summed figures."""


def run(
    directory: Path,
    incumbent: PolicyRef,
    rollouts: Sequence[FileRef],
    verdicts: Sequence[FileRef],
    section: TrainSection,
    max_failed_share: float,
    temperature: float,
    seed: int,
    iteration: int,
) -> StageResult:
    """The train stage: a candidate from all shards' rollouts and verdicts, into `directory/adapter`.

    Raises:
        StageFailed: more than `max_failed_share` of the rollouts could not be judged.
    """
    judged = [verdict for file in verdicts for verdict in read_jsonl(Path(file.path), Verdict)]
    require_few_faults(judged, max_failed_share)
    report = train(
        incumbent.base,
        incumbent.adapter,
        [rollout for file in rollouts for rollout in read_jsonl(Path(file.path), Rollout)],
        judged,
        section,
        temperature,
        seed,
        directory,
        {"run": str(directory), "iteration": iteration, "source_adapter": incumbent.adapter and incumbent.adapter.path},
    )
    files = {"report": FileRef.of(write_record(directory / "train.json", report))}
    if report.candidate is not None:
        adapter = Path(report.candidate.path)
        files |= {file.name: FileRef.of(file) for file in sorted(adapter.iterdir())}
        files["metrics"] = FileRef.of(directory / "metrics.jsonl")
    return StageResult(files=files, figures=report.model_dump(mode="json"))


def train(
    base: str,
    incumbent: AdapterRef | None,
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    section: TrainSection,
    temperature: float,
    seed: int,
    directory: Path,
    origin: dict[str, Any],
) -> TrainReport:
    """Train on one iteration's rollouts and write the candidate to `directory/adapter`.

    A checkpoint is written after each optimizer step; started again with the same inputs, training continues from it
    and ends with the same weights.

    Args:
        incumbent: the adapter to start from; None starts a fresh one.
        verdicts: those of an infrastructure fault are left out of their groups.
        temperature: at which the rollouts were sampled.
        origin: written into the adapter's config (source adapter, run, iteration …).

    Raises:
        AdapterError: the incumbent's shape is not the one that `section.lora` asks for.
        StageFailed: loss or gradient were not finite several times in a row.
    """
    started = time.monotonic()
    groups = judged_groups(rollouts, verdicts, section.normalise_advantages)
    useful = [group for group in groups if any(sample.advantage for sample in group)]
    candidate: AdapterRef | None = None
    metrics: list[StepMetrics] = []
    if useful:
        with device_policy_to_train(base, incumbent) as policy:
            candidate, metrics = _train_on(policy, incumbent, useful, section, temperature, seed, directory, origin)
    return TrainReport(
        candidate=candidate,
        steps=len(metrics),
        groups=len(groups),
        useful_groups=len(useful),
        reward_mean=float(np.mean([sample.reward for group in groups for sample in group])) if groups else 0.0,
        tokens=sum(step.tokens for step in metrics),
        duration_s=time.monotonic() - started,
    )


def _train_on(
    policy: Policy,
    incumbent: AdapterRef | None,
    groups: Sequence[list[Sample]],
    section: TrainSection,
    temperature: float,
    seed: int,
    directory: Path,
    origin: dict[str, Any],
) -> tuple[AdapterRef, list[StepMetrics]]:
    """Train the policy on groups that have something to teach, and save what came of it."""
    taught = [(sample.rollout.id, sample.advantage) for group in groups for sample in group]
    identity = digest(policy.base, policy.name, section.dump(), temperature, seed, taught)
    _prepare_adapter(policy, section, seed)
    trainer = Trainer(policy, section, directory, identity)
    if incumbent is not None:
        trainer.read_optimizer(Path(incumbent.path, OPTIMIZER_STATE))
    metrics = trainer.run(_minibatches(groups, section, seed), temperature)
    adapter = directory / "adapter"
    trainer.write_optimizer(adapter / OPTIMIZER_STATE)
    candidate = policy.save_adapter(adapter, {"kind": "lora", **origin})
    (directory / CHECKPOINT).unlink(missing_ok=True)
    return candidate, metrics


def judged_groups(rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], normalise: bool) -> list[list[Sample]]:
    """Rollouts by problem, with rewards and advantages; those that could not be judged are left out."""
    by_rollout = {verdict.rollout_id: verdict for verdict in verdicts}
    grouped: dict[str, list[tuple[Rollout, float]]] = defaultdict(list)
    for rollout in rollouts:
        verdict = by_rollout.get(rollout.id)
        if verdict is not None and verdict.status != "infrastructure":
            grouped[rollout.problem_id].append((rollout, verdict.reward))
    result = []
    for members in grouped.values():
        advantages = group_advantages([reward for _, reward in members], normalise)
        result.append(
            [Sample(rollout, reward, float(a)) for (rollout, reward), a in zip(members, advantages, strict=True)]
        )
    return result


def _rollouts(group: Sequence[Sample]) -> list[Rollout]:
    return [sample.rollout for sample in group]


def _prepare_adapter(policy: Policy, section: TrainSection, seed: int) -> None:
    """Make the adapter's weights, and only them, trainable."""
    if policy.lora is None:
        policy.add_lora(section.lora, derive_seed(seed, "lora"))
    elif policy.lora != section.lora:
        raise AdapterError(
            f"the incumbent adapter has {_shape(policy.lora)}, train.lora asks for {_shape(section.lora)}; "
            "set train.lora to the former or start a new project"
        )
    policy.model.freeze()
    policy.model.unfreeze(keys=["lora_a", "lora_b"], strict=False)


def _shape(lora: Any) -> str:
    return f"rank {lora.rank}, scale {lora.scale:g}, layers {lora.layers or 'all'}, modules {'/'.join(lora.modules)}"


def _minibatches(groups: Sequence[list[Sample]], section: TrainSection, seed: int) -> list[list[MicroBatch]]:
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


def micro_batch(samples: Sequence[Sample], extra_padding: int = 0) -> MicroBatch:
    """Rollouts of one problem as arrays, padded to the longest of them and `extra_padding` more."""
    length = max(len(sample.rollout.tokens) for sample in samples) + extra_padding

    def padded(rows: list[Sequence[float]]) -> np.ndarray:
        return np.array([[*row, *[0] * (length - len(row))] for row in rows])

    rollouts = _rollouts(samples)
    return MicroBatch(
        prompt=mx.array([rollouts[0].prompt_tokens]),
        answers=mx.array(padded([rollout.tokens for rollout in rollouts]).astype(np.int32)),
        mask=mx.array(padded([[1.0] * len(rollout.tokens) for rollout in rollouts]).astype(np.float32)),
        behaviour_logprobs=mx.array(padded([rollout.logprobs for rollout in rollouts]).astype(np.float32)),
        advantages=mx.array(np.array([sample.advantage for sample in samples], dtype=np.float32)),
        rewards=tuple(sample.reward for sample in samples),
    )


def grpo_loss(section: TrainSection, temperature: float) -> LossFn:
    """GRPO with truncated importance correction and, if weighted, a KL penalty; see `losses`."""
    clip = ClipRange(section.clip_low, section.clip_high)

    def loss_fn(policy: Policy, batch: MicroBatch, tokens: int) -> tuple[mx.array, dict[str, mx.array]]:
        logprobs = policy.answer_logprobs(batch.prompt, batch.answers, temperature)
        assert batch.old_logprobs is not None
        losses, clipped = grpo_token_losses(logprobs, batch.old_logprobs, batch.advantages, clip)
        losses = losses * importance_weights(batch.old_logprobs, batch.behaviour_logprobs, section.importance_cap)
        kl = mx.zeros_like(losses)
        if batch.reference_logprobs is not None:
            kl = k3_divergence(logprobs, batch.reference_logprobs)
            losses = losses + section.kl_weight * kl
        mismatch = mx.abs(batch.old_logprobs - batch.behaviour_logprobs)
        figures = {"kl": kl, "clip_fraction": clipped, "mismatch": mismatch}
        return token_mean(losses, batch.mask, tokens), {key: mx.sum(x * batch.mask) for key, x in figures.items()}

    return loss_fn


class Trainer:
    """Optimizer steps over minibatches, each followed by a checkpoint."""

    def __init__(self, policy: Policy, section: TrainSection, directory: Path, identity: str):
        self.policy = policy
        self.section = section
        self.directory = directory
        self.identity = identity
        """Digest of all that decides the result; a checkpoint of something else is not continued."""
        self.optimizer = optim.AdamW(
            learning_rate=_schedule(section), betas=list(section.betas), weight_decay=section.weight_decay
        )
        self.optimizer.init(policy.model.trainable_parameters())

    def run(self, steps: Sequence[list[MicroBatch]], temperature: float) -> list[StepMetrics]:
        """Take every step that the checkpoint does not already hold; the metrics of all of them."""
        steps = [[self.with_old_logprobs(batch, temperature) for batch in step] for step in steps]
        metrics = self._resume()
        loss_fn = grpo_loss(self.section, temperature)
        # Never train(): log-probabilities are compared all along, and dropout would make them differ by itself.
        self.policy.model.eval()
        for number in range(len(metrics), len(steps)):
            metrics.append(self._step(number, steps[number], loss_fn))
            write_jsonl(self.directory / "metrics.jsonl", metrics)
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

    def with_old_logprobs(self, batch: MicroBatch, temperature: float) -> MicroBatch:
        """Score the answers with the trainer's own forward pass before anything is trained."""
        old = self.policy.answer_logprobs(batch.prompt, batch.answers, temperature)
        reference = None
        mx.eval(old)
        if self.section.kl_weight > 0:
            with self.policy.adapter_off():
                reference = self.policy.answer_logprobs(batch.prompt, batch.answers, temperature)
                mx.eval(reference)
        progress.report("train", 0, 0)
        return MicroBatch(**{**vars(batch), "old_logprobs": old, "reference_logprobs": reference})

    def _step(self, number: int, step: Sequence[MicroBatch], loss_fn: LossFn) -> StepMetrics:
        started = time.monotonic()
        tokens = sum(int(np.array(batch.mask).sum()) for batch in step)
        loss, gradient, figures = self.accumulate(step, loss_fn, tokens)
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
            rollouts=sum(batch.answers.shape[0] for batch in step),
            tokens=tokens,
            reward_mean=float(np.mean([reward for batch in step for reward in batch.rewards])),
            duration_s=duration,
            tokens_per_s=tokens / duration,
            peak_memory_gb=mx.get_peak_memory() / 1e9,
            **{key: value / tokens for key, value in figures.items()},
        )

    def accumulate(
        self, step: Sequence[MicroBatch], loss_fn: LossFn, tokens: int
    ) -> tuple[float, Any, dict[str, float]]:
        """Loss, gradient and summed figures of a minibatch, one micro-batch in memory at a time."""
        value_and_grad = nn.value_and_grad(self.policy.model, lambda batch: loss_fn(self.policy, batch, tokens))
        total, gradient, figures = 0.0, None, defaultdict[str, float](float)
        for batch in step:
            (loss, sums), part = value_and_grad(batch)
            gradient = part if gradient is None else tree_map(mx.add, gradient, part)
            mx.eval(loss, gradient, sums)
            total += loss.item()
            for key, value in sums.items():
                figures[key] += value.item()
            progress.report("train", 0, 0)
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
        arrays |= {f"optimizer.{name}": value for name, value in _flat(self.optimizer.state).items()}
        information = {"identity": self.identity, "metrics": "\n".join(step.model_dump_json() for step in metrics)}
        write_atomic(
            self.directory / CHECKPOINT, lambda file: mx.save_safetensors(str(file), arrays, metadata=information)
        )

    def _resume(self) -> list[StepMetrics]:
        """Take weights and optimizer from the checkpoint, if there is one of this very training; its metrics."""
        path = self.directory / CHECKPOINT
        try:
            loaded: Any = mx.load(str(path), return_metadata=True)
        except (FileNotFoundError, RuntimeError, ValueError):
            return []
        arrays, information = loaded
        if information.get("identity") != self.identity:
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
        state = _flat(self.optimizer.state)
        write_atomic(path, lambda file: mx.save_safetensors(str(file), state))

    def read_optimizer(self, path: Path) -> None:
        """Go on with an earlier optimizer's state; an adapter from elsewhere has none and starts afresh."""
        if path.is_file():
            state = dict(mx.load(str(path)))  # type: ignore[arg-type]
            state.pop("learning_rate", None)
            self.optimizer.state = {**self.optimizer.state, **tree_unflatten(list(state.items()))}


def _flat(state: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(state))


def _schedule(section: TrainSection) -> Any:
    if section.warmup_steps == 0:
        return section.learning_rate
    return optim.linear_schedule(0.0, section.learning_rate, section.warmup_steps)
