"""The model as a source: it invents problems, as JSON, after examples of such."""

from collections.abc import Sequence
from pathlib import Path

from rlm_core.asking import ask
from rlm_core.config import GenerateSection
from rlm_core.examples import examples_for, problem_json, solved_problems
from rlm_core.files import read_jsonl
from rlm_core.model.device import device_policy
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem, Provenance
from rlm_core.proposals.parse import collect
from rlm_core.proposers.proposer import Context
from rlm_core.records import Rejection
from rlm_core.seeds import derive_seed
from rlm_core.state.corpus import CorpusAnswer

_SUBJECTS = {
    "strings": "strings",
    "arrays": "lists of numbers",
    "maths": "integers and arithmetic",
    "dp": "dynamic programming",
    "graphs": "graphs given as adjacency dicts",
    "recursion": "recursion on nested lists or numbers",
}


def propose(context: Context, count: int) -> tuple[list[Problem], list[Rejection]]:
    """Problems that the learner invents; one proposal or rejection for each that it is asked for."""
    solved = solved_problems(read_jsonl(Path(context.corpus.path), CorpusAnswer)) if context.corpus else []
    asked_before = (context.iteration - 1) * count
    with device_policy(context.learner.base, context.learner.adapter) as policy:
        return invented(policy, count, context.section, context.bank, context.seed, solved, asked_before)


def invented(
    policy: Policy,
    count: int,
    section: GenerateSection,
    bank: Sequence[Problem],
    seed: int,
    solved: Sequence[Problem] = (),
    asked_before: int = 0,
) -> tuple[list[Problem], list[Rejection]]:
    """Ask the model for so many problems, rotating through the domains.

    Args:
        bank, solved: problems of which some are shown as patterns: curated ones, and those of the corpus.
        seed: of the iteration's generate stage.
        asked_before: problems that earlier iterations asked for: the rotation goes on from there.

    Returns:
        Well-formed proposals, unfiltered, and the answers that held none.
    """
    domains = [section.domains[(asked_before + i) % len(section.domains)] for i in range(count)]
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
