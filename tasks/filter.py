"""The filter stage as a task."""

from pathlib import Path

from rlm_core import filter as core
from rlm_core.config import FilterSection, GenerateSection, VerifySection
from rlm_core.records import StageResult
from tasks.stage import Result, results_of, stage_task


@stage_task(
    version=3,
    description="Proposals are checked; the bank fills up.",
    reads=["filter", "generate.bank", "generate.choice", "generate.problems", "verify"],
    ignores=["verify.workers", "verify.max_failed_share"],
)
def filter_problems(
    directory: str,
    project: str,
    proposals: list[Result],
    generate: GenerateSection,
    suites: dict[str, str],
    section: FilterSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
    reserve: int,
) -> StageResult:
    offered = [results_of(made, directory).files["problems"] for made in proposals]
    return core.run(
        Path(directory), Path(project), offered, generate, suites, section, verify, project_seed, iteration, reserve
    )
