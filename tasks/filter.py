"""The filter stage as a task."""

from pathlib import Path

from rlm_core import filter as core
from rlm_core.config import FilterSection, GenerateSection, RolloutSection, VerifySection
from rlm_core.records import PolicyRef, StageResult
from tasks.stage import Result, results_of, stage_task

_ANSWERING = [
    f"rollout.{name}"
    for name in ("max_tokens", "temperature", "top_p", "top_k", "batch_size", "stop_after_code", "prompt_suffix")
]
"""How answers are sampled of which a majority is looked for."""


@stage_task(
    version=13,
    description="Proposals are checked; the bank fills up.",
    reads=[
        "filter",
        "generate.bank",
        "generate.choice",
        "generate.problems",
        "generate.prove_bank",
        "verify",
        *_ANSWERING,
    ],
    ignores=["verify.workers", "verify.max_failed_share"],
    name="filter",  # which in Python is something else
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
    learner: PolicyRef,
    rollout: RolloutSection,
    reserve: int,
) -> StageResult:
    offered = [results_of(made, directory).files["problems"] for made in proposals]
    return core.run(
        Path(directory),
        Path(project),
        offered,
        generate,
        suites,
        section,
        verify,
        project_seed,
        iteration,
        learner,
        rollout,
        reserve,
    )
