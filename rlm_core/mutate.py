"""Variations of problems: written by the model, or made by changing a solution and its description together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlm_core.asking import ask
from rlm_core.config import MutateSection
from rlm_core.examples import judged_by_cases, problem_json
from rlm_core.files import read_jsonl
from rlm_core.model.device import device_policy
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem, Provenance
from rlm_core.proposals.parse import collect
from rlm_core.records import FileRef, PolicyRef, Rejection, StageResult
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_problems
from rlm_core.sources.rewrites import rewritten
from rlm_core.written import written


def run(
    directory: Path,
    learner: PolicyRef,
    proposals: FileRef,
    bank: str,
    section: MutateSection,
    project_seed: int,
    iteration: int,
) -> StageResult:
    """The mutate stage: variations of proposals, and of bank problems where those are too few, into `mutants.jsonl`."""
    parents = list(read_jsonl(Path(proposals.path), Problem))
    seed = derive_seed(project_seed, iteration, "mutate")
    known = judged_by_cases(read_problems(bank))
    parents += [known[i] for i in np.random.default_rng(derive_seed(seed, "parents")).permutation(len(known))]
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    if section.parents and section.per_problem:
        with device_policy(learner.base, learner.adapter) as policy:
            problems, rejections = mutate(policy, parents, section, seed)
    asked = len(problems) + len(rejections)
    problems += rewritten(parents, section.of_solutions, derive_seed(seed, "solutions"))
    return written(directory, "mutants", problems, rejections, asked=asked)


def mutate(
    policy: Policy, parents: Sequence[Problem], section: MutateSection, seed: int
) -> tuple[list[Problem], list[Rejection]]:
    """Ask the model for `section.per_problem` variations of each of the first `section.parents` parents.

    Returns:
        Well-formed mutants, unfiltered, and the answers that held none.
    """
    chosen = [parent for parent in parents[: section.parents] for _ in range(section.per_problem)]
    sampling = Sampling(section.temperature, section.max_tokens)
    texts = ask(policy, [mutation_turns(parent) for parent in chosen], sampling, seed, "mutate")
    origins = [Provenance(source="mutation", parent=parent.id) for parent in chosen]
    return collect(texts, "mutate", origins, [parent.domain for parent in chosen])


def mutation_turns(parent: Problem) -> list[str]:
    """The conversation that asks for a variation of `parent`, after an example of one."""
    return [_request(_EXAMPLE), problem_json(_VARIATION), _request(parent)]


def _request(parent: Problem) -> str:
    asked = "Change the rule of this programming exercise, and its name, solution and tests with it:"
    return f"{asked}\n{problem_json(parent)}"


_EXAMPLE = Problem.model_validate(
    {
        "prompt": "Write a Python function `sum_positive(values)` that returns the sum of the positive numbers.",
        "entry_point": "sum_positive",
        "signature": "sum_positive(values: list[int]) -> int",
        "reference": "def sum_positive(values):\n    return sum(v for v in values if v > 0)\n",
        "cases": [
            {"input": [[1, -2, 3]], "expected": 4},
            {"input": [[-1, -5]], "expected": 0},
            {"input": [[7, 8, -9]], "expected": 15},
            {"input": [[2]], "expected": 2},
            {"input": [[0, 5, -5, 6]], "expected": 11},
        ],
    }
)
_VARIATION = Problem.model_validate(
    {
        "prompt": "Write a Python function `count_negative(values)` that returns how many values are negative.",
        "entry_point": "count_negative",
        "signature": "count_negative(values: list[int]) -> int",
        "reference": "def count_negative(values):\n    return len([v for v in values if v < 0])\n",
        "cases": [
            {"input": [[1, -2, 3]], "expected": 1},
            {"input": [[-1, -5, -6]], "expected": 3},
            {"input": [[7, 8, 9]], "expected": 0},
            {"input": [[-2, 4, -3]], "expected": 2},
            {"input": [[0, -7, 1, -1, -9, -4]], "expected": 4},
        ],
    }
)
