"""New problems: the model invents some, as JSON, and others are composed of primitives.

What of the model's answers is not usable becomes a rejection with a reason.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import json_repair
import numpy as np
from pydantic import ValidationError

from rlm_core.config import GenerateSection, VerifySection
from rlm_core.files import first_reason, write_jsonl
from rlm_core.model.decoding import Request
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy, device_policy
from rlm_core.problems import Cases, Problem, Provenance
from rlm_core.records import FileRef, PolicyRef, Rejection, StageResult
from rlm_core.rollout import ProgressMeter
from rlm_core.sandbox import open_sandbox
from rlm_core.seeds import derive_seed
from rlm_core.sources import procedural, read_problems

SHOWN_CHARS = 2_000
"""Longest part of a proposal that a rejection keeps."""

_SHOWN_CASES = 5
_EXAMPLES = 3
_OPENING = '{"id": "'
"""How every answer begins, so that the model cannot but go on with a JSON object."""

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
) -> StageResult:
    """The generate stage: proposals, into `directory/proposals.jsonl`, and a check that the bank can be read.

    Args:
        verify: for the sandbox in which references are run.
    """
    bank = judged_by_cases(read_problems(section.bank))
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    if section.from_model:
        with device_policy(learner.base, learner.adapter) as policy:
            problems, rejections = propose(policy, section, bank, derive_seed(project_seed, iteration, "generate"))
    if section.from_procedural:
        with open_sandbox(verify.sandbox, verify.limits, container=verify.container) as sandbox:
            composed = procedural.problems(
                section.from_procedural, project_seed, iteration, section.difficulty, sandbox
            )
        problems += composed
        rejections += used_up(composed, section)
    return written(directory, "proposals", problems, rejections)


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
            proposal="",
        )
        for difficulty, count in wanted.items()
        if found[str(difficulty)] < count
    ]


def written(directory: Path, name: str, problems: Sequence[Problem], rejections: Sequence[Rejection]) -> StageResult:
    """The result of a stage that makes problems: two files, and how many are in each."""
    kept = write_jsonl(directory / f"{name}.jsonl", problems)
    refused = write_jsonl(directory / f"{name}.rejections.jsonl", rejections)
    return StageResult(
        files={"problems": FileRef.of(kept), "rejections": FileRef.of(refused)},
        figures={"problems": len(problems), "rejections": len(rejections)},
    )


def propose(
    policy: Policy, section: GenerateSection, examples: Sequence[Problem], seed: int
) -> tuple[list[Problem], list[Rejection]]:
    """Ask the model for `section.from_model` problems, rotating through the domains.

    Args:
        examples: problems of which some are shown as patterns.
        seed: of the iteration's generate stage.

    Returns:
        Well-formed proposals, unfiltered, and the answers that held none.
    """
    domains = [section.domains[i % len(section.domains)] for i in range(section.from_model)]
    conversations = [
        proposal_turns(domain, _chosen(examples, domain, derive_seed(seed, "examples", i)), section.use_recursion)
        for i, domain in enumerate(domains)
    ]
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


def judged_by_cases(problems: Iterable[Problem]) -> list[Problem]:
    """Those problems that can serve as a pattern: the model is asked for others of their kind."""
    return [problem for problem in problems if isinstance(problem.verifier, Cases)]


def problem_json(problem: Problem) -> str:
    """A problem in the form in which the model is asked to write one, with its first few cases."""
    cases = [case for case in problem.cases if not case.raises][:_SHOWN_CASES]
    return json.dumps(
        {
            "id": problem.entry_point,
            "description": problem.prompt.partition(" that ")[2] or problem.prompt,
            "signature": problem.signature or problem.entry_point,
            "solution": problem.reference or "",
            "tests": [{"input": case.input, "expected": case.expected} for case in cases],
        },
        ensure_ascii=False,
    )


def ask(policy: Policy, conversations: Sequence[list[str]], sampling: Sampling, seed: int, stage: str) -> list[str]:
    """The model's answers to conversations whose last turn asks for a problem, in their order."""
    requests = [
        Request(policy.prompt_tokens(*turns, opening=_OPENING), derive_seed(seed, i))
        for i, turns in enumerate(conversations)
    ]
    if not requests:
        return []
    completions = policy.sample(requests, sampling, len(requests), ProgressMeter(stage, len(requests)))
    return [_OPENING + policy.text(completion.tokens) for completion in completions]


def collect(
    texts: Sequence[str], stage: Literal["generate", "mutate"], origins: Sequence[Provenance], domains: Sequence[str]
) -> tuple[list[Problem], list[Rejection]]:
    """Problems and rejections from the model's answers."""
    problems, rejections = [], []
    for text, origin, domain in zip(texts, origins, domains, strict=True):
        try:
            problems.append(parse_proposal(text, origin, domain))
        except (ValueError, RecursionError) as error:
            reason = first_reason(error)
            rejections.append(Rejection(stage=stage, rule="well_formed", reason=reason, proposal=text[:SHOWN_CHARS]))
    return problems, rejections


def parse_proposal(text: str, origin: Provenance, domain: str) -> Problem:
    """A problem from a model's answer: its first JSON object, repaired where that is possible.

    Raises:
        ValueError: the answer holds no JSON object, or not one that describes a problem.
    """
    start = text.find("{")
    if start < 0:
        raise ValueError("no JSON object in the answer")
    content = json_repair.loads(text[start:])
    if isinstance(content, list):
        content = next((item for item in content if isinstance(item, dict)), None)
    if not isinstance(content, dict):
        raise ValueError("no JSON object in the answer")
    return _as_problem(content, origin, domain)


def _as_problem(content: dict[str, Any], origin: Provenance, domain: str) -> Problem:
    signature, description = content.get("signature"), content.get("description")
    if not isinstance(signature, str) or not isinstance(description, str) or not description.strip():
        raise ValueError("signature and description must be texts")
    signature = signature.strip().removeprefix("def ").removesuffix(":").strip()
    tests = content.get("tests")
    if not isinstance(tests, list):
        raise ValueError("tests must be a list")
    solution = content.get("solution")
    fields = {
        "prompt": f"Write a Python function `{signature.partition(' ->')[0]}` that {description.strip()}",
        "entry_point": signature.partition("(")[0].strip(),
        "signature": signature,
        "domain": domain,
        "cases": [_as_case(test) for test in tests],
        "reference": solution if isinstance(solution, str) and solution.strip() else None,
        "provenance": origin.model_dump(),
    }
    try:
        return Problem.model_validate_json(json.dumps(fields, allow_nan=False))
    except ValidationError as error:
        raise ValueError(first_reason(error)) from error


def _as_case(test: Any) -> dict[str, Any]:
    if not isinstance(test, dict) or "input" not in test or "expected" not in test:
        raise ValueError("each test needs input and expected")
    arguments = test["input"]
    return {"input": arguments if isinstance(arguments, list) else [arguments], "expected": test["expected"]}


def _chosen(examples: Sequence[Problem], domain: str, seed: int) -> list[Problem]:
    """Up to three examples, of the domain where there are such."""
    fitting = [problem for problem in examples if problem.domain == domain] or list(examples)
    order = np.random.default_rng(seed).permutation(len(fitting))[:_EXAMPLES]
    return [fitting[i] for i in order]
