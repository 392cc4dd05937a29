"""The bank that ships: right, not to be passed by doing nothing, and three parts that do not repeat each other."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import pytest

from rlm_core.config import DOMAINS, FilterSection
from rlm_core.filter import RULES, jaccard, shingles
from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.bank import LEVELS
from rlm_core.verifiers.cases import judge_cases
from rlm_core.verifiers.trivial import best_trivial_share

PARTS = {part: read_problems(f"bank:{part}") for part in ("train", "benchmark", "holdout")}
EVERY = [problem for problems in PARTS.values() for problem in problems]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def share_passed(sandbox: Sandbox, code: str, problem: Problem) -> float:
    return sum(case.outcome == "passed" for case in judge_cases(sandbox, code, problem).cases) / len(problem.cases)


def test_the_bank_is_large_enough() -> None:
    """Parity row 9: at least 120 problems with reference solutions ship with the package."""
    sizes = {part: len(problems) for part, problems in PARTS.items()}
    assert sizes["train"] >= 60
    assert sizes["benchmark"] >= 40
    assert sizes["holdout"] >= 40
    assert sum(problem.reference is not None for problem in EVERY) == len(EVERY) >= 120


@pytest.mark.parametrize("part", PARTS)
def test_every_level_is_in_each_part_and_nothing_else(part: str) -> None:
    assert {problem.difficulty for problem in PARTS[part]} == set(LEVELS)


@pytest.mark.parametrize("part", PARTS)
def test_every_domain_is_in_each_part(part: str) -> None:
    assert {problem.domain for problem in PARTS[part]} == set(DOMAINS)


def test_every_reference_passes_all_its_cases(sandbox: Sandbox) -> None:
    verdicts = {problem.entry_point: judge_cases(sandbox, str(problem.reference), problem) for problem in EVERY}
    assert {name: verdict.reason for name, verdict in verdicts.items() if verdict.status != "passed"} == {}


@pytest.mark.parametrize("body", ["return None", "return args[0]"])
def test_an_answer_that_does_nothing_passes_at_most_half_of_the_cases(sandbox: Sandbox, body: str) -> None:
    shares = {p.entry_point: share_passed(sandbox, f"def {p.entry_point}(*args):\n    {body}\n", p) for p in EVERY}
    assert {name: share for name, share in shares.items() if share > 0.5} == {}


def test_no_trivial_answer_passes_more_than_half_of_the_cases() -> None:
    assert {p.entry_point: best_trivial_share(p) for p in EVERY if best_trivial_share(p) > 0.5} == {}


def test_the_bank_would_pass_the_rules_for_proposals() -> None:
    refused = {
        (problem.entry_point, name): reason
        for problem in EVERY
        for name, rule in RULES.items()
        if (reason := rule(problem, FilterSection()))
    }
    assert refused == {}


def test_no_two_problems_are_alike() -> None:
    known = [(problem.entry_point, shingles(problem.prompt)) for problem in EVERY]
    alike = [(a, b, jaccard(x, y)) for (a, x), (b, y) in combinations(known, 2) if jaccard(x, y) >= 0.5]
    assert alike == []


def test_ids_and_names_are_unique() -> None:
    assert [key for key, count in Counter(problem.id for problem in EVERY).items() if count > 1] == []
    assert [key for key, count in Counter(problem.entry_point for problem in EVERY).items() if count > 1] == []


def test_every_prompt_names_its_function_as_the_signature_does() -> None:
    unnamed = [
        problem.entry_point
        for problem in EVERY
        if f"`{problem.entry_point}(" not in problem.prompt
        or not str(problem.signature).startswith(f"{problem.entry_point}(")
    ]
    assert unnamed == []
