"""The evaluate stage as a task, one policy and one suite at a time."""

from pathlib import Path

from rlm_core import evaluate as core
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.records import Examinee, StageResult
from tasks.stage import stage_task


@stage_task(version=1, description="A policy sits an exam.")
def evaluate(
    directory: str,
    project: str,
    who: str,
    examined: Examinee,
    suite: str,
    section: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
    seed: int,
) -> StageResult:
    return core.run(Path(directory), Path(project), who, examined, suite, section, rollout, verify, seed)
