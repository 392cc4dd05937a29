"""The verify stage as a task, one shard at a time."""

from pathlib import Path

from rlm_core import verify as core
from rlm_core.config import VerifySection
from rlm_core.records import StageResult
from tasks.stage import Result, results_of, stage_task


@stage_task(
    version=2,
    description="A shard's answers run against their cases in a sandbox.",
    reads=["verify"],
    ignores=["verify.workers", "verify.max_failed_share"],
)
def verify(directory: str, problems: Result, source: str, rollouts: Result, section: VerifySection) -> StageResult:
    asked = results_of(problems, directory).files[source]
    answers = results_of(rollouts, directory).files["rollouts"]
    return core.run(Path(directory), asked, answers, section)
