"""Variations of problems, written by the model."""

from collections.abc import Sequence
from pathlib import Path

from rlm_core.config import MutateSection
from rlm_core.files import read_jsonl
from rlm_core.generate import ask, collect, problem_json, written
from rlm_core.policy import Policy, Sampling, device_policy
from rlm_core.records import FileRef, PolicyRef, Problem, Provenance, Rejection, StageResult
from rlm_core.seeds import derive_seed
from rlm_core.sources.problem_files import bank_order, read_problems


def run(
    directory: Path,
    incumbent: PolicyRef,
    proposals: FileRef,
    bank: str,
    wanted: int,
    section: MutateSection,
    project_seed: int,
    iteration: int,
) -> StageResult:
    """The mutate stage: variations of proposals, and of bank problems where those are too few, into `mutants.jsonl`."""
    parents = list(read_jsonl(Path(proposals.path), Problem))
    parents += bank_order(read_problems(bank), project_seed, iteration, wanted)
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    if section.parents and section.per_problem:
        with device_policy(incumbent.base, incumbent.adapter) as policy:
            problems, rejections = mutate(policy, parents, section, derive_seed(project_seed, iteration, "mutate"))
    return written(directory, "mutants", problems, rejections)


def mutate(
    policy: Policy, parents: Sequence[Problem], section: MutateSection, seed: int
) -> tuple[list[Problem], list[Rejection]]:
    """Ask the model for `section.per_problem` variations of each of the first `section.parents` parents.

    Returns:
        Well-formed mutants, unfiltered, and the answers that held none.
    """
    chosen = [parent for parent in parents[: section.parents] for _ in range(section.per_problem)]
    sampling = Sampling(section.temperature, section.max_tokens)
    texts = ask(policy, [mutation_prompt(parent) for parent in chosen], sampling, seed, "mutate")
    origins = [Provenance(source="mutation", parent=parent.id) for parent in chosen]
    return collect(texts, "mutate", origins, [parent.domain for parent in chosen])


def mutation_prompt(parent: Problem) -> str:
    """The message that asks for a variation of `parent`."""
    return (
        "Here is a programming exercise as a JSON object:\n"
        f"{problem_json(parent)}\n"
        "Write a variation of it with a changed rule and another name. Change the tests so that they are right for it. "
        "Answer with one JSON object and nothing else."
    )
