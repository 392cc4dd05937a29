"""New problems: the model invents some, as JSON, and others are composed of primitives."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlm_core.asking import ask
from rlm_core.config import GenerateSection, VerifySection
from rlm_core.examples import examples_for, judged_by_cases, problem_json, solved_problems
from rlm_core.files import read_jsonl
from rlm_core.judging import open_configured
from rlm_core.model.device import device_policy
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem, Provenance
from rlm_core.proposals.parse import collect
from rlm_core.records import FileRef, PolicyRef, Rejection, StageResult
from rlm_core.seeds import derive_seed
from rlm_core.sources import procedural, read_problems
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.written import written

_SUBJECTS = {
    "strings": "strings",
    "arrays": "lists of numbers",
    "maths": "integers and arithmetic",
    "dp": "dynamic programming",
    "graphs": "graphs given as adjacency dicts",
    "recursion": "recursion on nested lists or numbers",
}


def run(
    directory: Path,
    learner: PolicyRef,
    section: GenerateSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
    corpus: FileRef | None = None,
) -> StageResult:
    """The generate stage: proposals, into `directory/proposals.jsonl`, and a check that the bank can be read.

    Args:
        corpus: what may be shown to the model, of earlier iterations, the most useful first.
        verify: for the sandbox in which references are run.
    """
    bank = judged_by_cases(read_problems(section.bank))
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    if section.from_model:
        solved = solved_problems(read_jsonl(Path(corpus.path), CorpusAnswer)) if corpus else []
        seed = derive_seed(project_seed, iteration, "generate")
        with device_policy(learner.base, learner.adapter) as policy:
            asked_before = (iteration - 1) * section.from_model
            problems, rejections = propose(policy, section, bank, seed, solved, asked_before)
    asked = len(problems) + len(rejections)
    if section.from_procedural:
        with open_configured(verify) as sandbox:
            composed = procedural.problems(
                section.from_procedural, project_seed, iteration, section.difficulty, sandbox
            )
        problems += composed
        rejections += used_up(composed, section)
    return written(directory, "proposals", problems, rejections, asked=asked)


def used_up(composed: Sequence[Problem], section: GenerateSection) -> list[Rejection]:
    """For each difficulty that has not as many composed problems left as were asked for, that this is so."""
    wanted = procedural.shares(section.from_procedural, section.difficulty)
    found = Counter(problem.difficulty for problem in composed)
    return [
        Rejection(
            stage="generate",
            rule="used_up",
            reason=f"{found[str(difficulty)]} of {count} composed problems of difficulty {difficulty}: all others were "
            "given before; other difficulties can be asked for in generate.difficulty",
            value=found[str(difficulty)],
            limit=count,
            proposal="",
        )
        for difficulty, count in wanted.items()
        if found[str(difficulty)] < count
    ]


def propose(
    policy: Policy,
    section: GenerateSection,
    bank: Sequence[Problem],
    seed: int,
    solved: Sequence[Problem] = (),
    asked_before: int = 0,
) -> tuple[list[Problem], list[Rejection]]:
    """Ask the model for `section.from_model` problems, rotating through the domains.

    Args:
        bank, solved: problems of which some are shown as patterns: curated ones, and those of the corpus.
        seed: of the iteration's generate stage.
        asked_before: problems that earlier iterations asked for: the rotation goes on from there.

    Returns:
        Well-formed proposals, unfiltered, and the answers that held none.
    """
    domains = [section.domains[(asked_before + i) % len(section.domains)] for i in range(section.from_model)]
    conversations = []
    for i, domain in enumerate(domains):
        shown = examples_for(domain, bank, solved, section.solved_examples, derive_seed(seed, "examples", i))
        conversations.append(proposal_turns(domain, shown, section.use_recursion))
    sampling = Sampling(section.temperature, section.max_tokens)
    texts = ask(policy, conversations, sampling, seed, "generate")
    return collect(texts, "generate", [Provenance(source="model")] * len(texts), domains)


def proposal_turns(domain: str, examples: Sequence[Problem], use_recursion: bool) -> list[str]:
    """The conversation that asks for one problem: earlier requests, each answered with an example, and the request.

    A small model that is told what to write does not write it; one that is shown goes on.
    """
    recursion = " that is natural to solve with recursion" if use_recursion else ""
    request = f"Write a programming exercise about {_SUBJECTS[domain]}{recursion} as JSON."
    return [turn for example in examples for turn in (request, problem_json(example))] + [request]
