"""The generate stage as a task."""

from pathlib import Path

from rlm_core import generate as core
from rlm_core.config import GenerateSection
from rlm_core.records import PolicyRef, StageResult
from tasks.stage import stage_task


@stage_task(
    version=1,
    description="The model invents problems.",
    reads=["generate"],
    ignores=["generate.problems"],
)
def generate(directory: str, incumbent: PolicyRef, section: GenerateSection, seed: int) -> StageResult:
    return core.run(Path(directory), incumbent, section, seed)
