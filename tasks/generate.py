"""The generate stage as a task."""

from pathlib import Path

from rlm_core import generate as core
from rlm_core.config import GenerateSection, VerifySection
from rlm_core.records import FileRef, PolicyRef, StageResult
from tasks.stage import stage_task


@stage_task(
    version=7,
    description="Problems are invented by the model and composed of primitives.",
    reads=["generate", "verify.sandbox", "verify.limits", "verify.container"],
    ignores=["generate.choice", "generate.prove_bank"],
)
def generate(
    directory: str,
    learner: PolicyRef,
    section: GenerateSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
    corpus: FileRef | None,
) -> StageResult:
    return core.run(Path(directory), learner, section, verify, project_seed, iteration, corpus)
