"""The rollout stage as a task, one shard at a time."""

from pathlib import Path

from rlm_core import rollout as core
from rlm_core.config import RolloutSection
from rlm_core.records import PolicyRef, StageResult
from rlm_core.rounds import Shard
from tasks.stage import Result, results_of, stage_task


@stage_task(
    version=2,
    description="The policy answers one shard of problems, G times each.",
    reads=["rollout"],
    # How many further shards there may be, which servers there are and how they are reached changes nothing about
    # what the policy answers.
    ignores=[
        "rollout.resample_budget",
        "rollout.servers",
        "rollout.server_kind",
        "rollout.trust_servers",
        "rollout.server_model",
        "rollout.server_token_env",
        "rollout.server_patience_s",
        "rollout.fall_back_to_local",
    ],
)
def rollout(
    directory: str, learner: PolicyRef, problems: Result, shard: Shard, section: RolloutSection, seed: int
) -> StageResult:
    asked = results_of(problems, directory).files[shard.source]
    return core.run(Path(directory), learner, asked, shard, section, seed)
