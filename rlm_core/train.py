"""Train a candidate from the learner on an iteration's judged rollouts."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_core.config import RolloutSection, TrainSection
from rlm_core.files import digest, read_jsonl, write_jsonl, write_record
from rlm_core.model.adapters import check_trainable
from rlm_core.model.device import device_policy_to_train
from rlm_core.model.policy import Policy
from rlm_core.records import AdapterRef, FileRef, PolicyRef, Rollout, StageResult, TrainReport, Verdict
from rlm_core.seeds import derive_seed
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.state.run import Run
from rlm_core.training.batches import Experience, Rehearsed, experience_from, minibatches, with_rehearsed
from rlm_core.training.rehearsal import choose, rehearsed, wanted
from rlm_core.training.trainer import StepMetrics, Trainer
from rlm_core.verify import require_few_faults

OPTIMIZER_STATE = "optimizer.safetensors"
VERSION = 3
"""Raised when the same inputs would give another candidate: neither stored results nor checkpoints count then."""


def run(
    directory: Path,
    learner: PolicyRef,
    rollouts: Sequence[FileRef],
    verdicts: Sequence[FileRef],
    section: TrainSection,
    max_failed_share: float,
    sampled: RolloutSection,
    seed: int,
    iteration: int,
    corpus: FileRef | None = None,
) -> StageResult:
    """The train stage: a candidate from all shards' rollouts and verdicts, into `directory/adapter`.

    Args:
        corpus: what may be rehearsed, of earlier iterations.

    Raises:
        StageFailed: more than `max_failed_share` of the rollouts could not be judged.
    """
    judged = [verdict for file in verdicts for verdict in read_jsonl(Path(file.path), Verdict)]
    require_few_faults(judged, max_failed_share)
    report = train(
        learner.base,
        learner.adapter,
        [rollout for file in rollouts for rollout in read_jsonl(Path(file.path), Rollout)],
        judged,
        section,
        sampled,
        seed,
        directory,
        {"run": str(directory), "iteration": iteration, "source_adapter": learner.adapter and learner.adapter.path},
        list(read_jsonl(Path(corpus.path), CorpusAnswer)) if corpus else [],
    )
    at = Run(directory)
    files = {"report": FileRef.of(write_record(at.train_report, report))}
    if report.candidate is not None:
        adapter = Path(report.candidate.path)
        files |= {file.name: FileRef.of(file) for file in sorted(adapter.iterdir())}
        files["metrics"] = FileRef.of(at.metrics)
    if report.rehearsed:
        files["rehearsal"] = FileRef.of(at.rehearsal)
    return StageResult(files=files, figures=report.model_dump(mode="json", exclude={"candidate"}))


def train(
    base: str,
    learner: AdapterRef | None,
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    section: TrainSection,
    sampled: RolloutSection,
    seed: int,
    directory: Path,
    origin: dict[str, Any],
    corpus: Sequence[CorpusAnswer] = (),
) -> TrainReport:
    """Train on one iteration's rollouts and write the candidate to `directory/adapter`.

    A checkpoint is written after each optimizer step; started again with the same inputs, training continues from it
    and ends with the same weights. It stays until the iteration has ended: what comes after the last step can be killed
    too.

    Args:
        learner: the adapter to start from; None starts a fresh one.
        verdicts: those of an infrastructure fault are left out of their groups.
        sampled: how the rollouts were sampled.
        origin: written into the adapter's config (source adapter, run, iteration …).
        corpus: what may be rehearsed; written to `directory/rehearsal.jsonl` is what was chosen.

    Raises:
        AdapterError: this base cannot be trained as `section.adapter` asks, or the learner is of another shape.
        StageFailed: loss or gradient were not finite several times in a row.
    """
    started = time.monotonic()
    check_trainable(base, learner, section.adapter)
    experience = _experience(rollouts, verdicts, section, sampled, seed)
    candidate: AdapterRef | None = None
    metrics: list[StepMetrics] = []
    chosen = _choose(corpus, experience, section, seed, directory)
    if experience.useful:
        with device_policy_to_train(base, learner) as policy:
            old = [rehearsed(policy, answer, sampled.prompt_suffix) for answer in chosen]
            candidate, metrics = _train_on(policy, learner, experience, old, section, seed, directory, origin)
    return TrainReport(
        candidate=candidate,
        steps=len(metrics),
        groups=len(experience.groups),
        useful_groups=len(experience.useful),
        reward_mean=experience.reward_mean,
        tokens=sum(step.tokens for step in metrics),
        rehearsed=len(chosen),
        duration_s=time.monotonic() - started,
    )


def _experience(
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    section: TrainSection,
    sampled: RolloutSection,
    seed: int,
) -> Experience:
    method = section.settled_method()
    shuffled_by = derive_seed(seed, "shuffled rewards") if section.shuffle_rewards else None
    return experience_from(rollouts, verdicts, method, sampled.temperature, sampled.max_tokens, shuffled_by)


def _choose(
    corpus: Sequence[CorpusAnswer], experience: Experience, section: TrainSection, seed: int, directory: Path
) -> list[CorpusAnswer]:
    """The answers to rehearse, written down; so many that they have their share of all that is trained on.

    Here and not before sampling, because only now it is known how many rollouts have something to teach.
    """
    answers = section.epochs * sum(len(group) for group in experience.useful)
    count = wanted(answers, section.rehearsal.share)
    chosen = choose(corpus, count, section.rehearsal, derive_seed(seed, "rehearsal"))
    if chosen:
        write_jsonl(Run(directory).rehearsal, chosen)
    else:
        Run(directory).rehearsal.unlink(missing_ok=True)  # of a try with other settings
    return chosen


def _train_on(
    policy: Policy,
    learner: AdapterRef | None,
    experience: Experience,
    old: Sequence[Rehearsed],
    section: TrainSection,
    seed: int,
    directory: Path,
    origin: dict[str, Any],
) -> tuple[AdapterRef, list[StepMetrics]]:
    """Train the policy on groups that have something to teach and on old answers, and save what came of it."""
    taught = [(sample.rollout.id, sample.advantage) for group in experience.useful for sample in group]
    sampled = (experience.temperature, experience.max_tokens)
    again = [(answer.prompt.tolist(), answer.answer.tolist()) for answer in old]
    identity = digest(VERSION, policy.base, policy.name, section.dump(), sampled, seed, taught, again)
    if policy.shape is None:
        policy.add_adapter(section.adapter, derive_seed(seed, "lora"))
    trainer = Trainer(policy, section, experience, directory, identity)
    if learner is not None:
        trainer.read_optimizer(Path(learner.path, OPTIMIZER_STATE))
    metrics = trainer.run(with_rehearsed(minibatches(experience.useful, section, seed), old))
    adapter = Run(directory).adapter
    trainer.write_optimizer(adapter / OPTIMIZER_STATE)
    return policy.save_adapter(adapter, origin), metrics
