"""The train stage as a task."""

from pathlib import Path

from rlm_core import train as core
from rlm_core.config import RolloutSection, TrainSection
from rlm_core.records import FileRef, PolicyRef, StageResult
from tasks.stage import Result, results_of, stage_task


@stage_task(
    version=core.VERSION,
    description="A candidate is trained from the learner.",
    reads=["train", "rollout.temperature", "rollout.max_tokens", "rollout.prompt_suffix"],
    ignores=["train.rehearsal.corpus_size"],
)
def train(
    directory: str,
    learner: PolicyRef,
    rollouts: list[Result],
    verdicts: list[Result],
    section: TrainSection,
    max_failed_share: float,
    rollout: RolloutSection,
    seed: int,
    iteration: int,
    corpus: FileRef | None,
) -> StageResult:
    return core.run(
        Path(directory),
        learner,
        [results_of(shard, directory).files["rollouts"] for shard in rollouts],
        [results_of(shard, directory).files["verdicts"] for shard in verdicts],
        section,
        max_failed_share,
        rollout,
        seed,
        iteration,
        corpus,
    )
