"""The mutate stage as a task."""

from pathlib import Path

from rlm_core import mutate as core
from rlm_core.config import GenerateSection, MutateSection
from rlm_core.records import PolicyRef, StageResult
from tasks.stage import Result, results_of, stage_task


@stage_task(version=5, description="Problems are varied.", reads=["mutate", "generate.bank"])
def mutate(
    directory: str,
    learner: PolicyRef,
    proposals: Result,
    generate: GenerateSection,
    section: MutateSection,
    project_seed: int,
    iteration: int,
) -> StageResult:
    offered = results_of(proposals, directory).files["problems"]
    return core.run(Path(directory), learner, offered, generate.bank, section, project_seed, iteration)
