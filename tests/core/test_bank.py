"""The bank that ships: right, not to be passed by doing nothing, and three parts that do not repeat each other."""

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations, islice
from typing import Any

import pytest

from rlm_core.config import DOMAINS, FilterSection
from rlm_core.problems import Problem
from rlm_core.proposals.known import jaccard, shingles
from rlm_core.proposals.rules import RULES
from rlm_core.proposals.twins import twin
from rlm_core.sandbox import Limits, Sandbox, open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.bank import LEVELS
from rlm_core.verifiers.cases import encoder_for, passes, run_cases
from rlm_core.verifiers.trivial import best_trivial_share

PARTS = {part: read_problems(f"bank:{part}") for part in ("train", "benchmark", "holdout")}
EVERY = [problem for problems in PARTS.values() for problem in problems]
STARTERS = {part: [p for p in problems if p.difficulty == "starter"] for part, problems in PARTS.items()}
OTHERWISE: dict[type[ast.AST], Callable[[], Any]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.FloorDiv,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
}
"""Operators of the starters' solutions, and what could be written by mistake."""
ASK = """
def ask(entry_point, given):
    names = {}
    exec(REFERENCES[entry_point], names)
    return names[entry_point](*given)
"""
"""Calls one of many references."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def slips(code: str) -> Iterator[str]:
    """The code with one operator exchanged or one number off by one."""
    for number in range(sum(1 for _ in ast.walk(ast.parse(code)))):
        tree = ast.parse(code)
        node = next(islice(ast.walk(tree), number, None))
        if isinstance(node, ast.BinOp | ast.BoolOp):
            node.op = OTHERWISE[type(node.op)]()
        elif isinstance(node, ast.Compare):
            node.ops[0] = OTHERWISE[type(node.ops[0])]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            node.value += 1
        else:
            continue
        yield ast.unparse(tree)


def passes_here(code: str, problem: Problem) -> bool:
    """Whether a one-line solution, which needs no sandbox, passes all cases."""
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        return all(names[problem.entry_point](*deepcopy(case.input)) == case.expected for case in problem.cases)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False


def test_the_bank_is_large_enough() -> None:
    """Enough to train on and to tell policies apart, each with a reference solution; 120 are the least."""
    sizes = {part: len(problems) for part, problems in PARTS.items()}
    assert sizes["train"] >= 60
    assert sizes["benchmark"] >= 220
    assert sizes["holdout"] >= 220
    assert sum(problem.reference is not None for problem in EVERY) == len(EVERY) >= 120


def test_there_are_enough_starters_to_learn_from_and_to_prove_a_gain() -> None:
    counts = {part: len(starters) for part, starters in STARTERS.items()}
    assert counts["train"] >= 80
    assert counts["benchmark"] == counts["holdout"] >= 120


def test_starters_of_the_three_parts_are_of_the_same_kinds() -> None:
    """What is trained on and what is asked differ in the problems, not in the share of a domain."""
    shares = {
        part: {domain: sum(p.domain == domain for p in starters) / len(starters) for domain in DOMAINS}
        for part, starters in STARTERS.items()
    }
    assert shares["benchmark"] == pytest.approx(shares["train"], abs=0.02)
    assert shares["holdout"] == pytest.approx(shares["train"], abs=0.02)


def test_cases_of_a_starter_have_many_outputs_or_as_much_true_as_false() -> None:
    outputs = {
        p.entry_point: Counter(json.dumps(case.expected) for case in p.cases)
        for starters in STARTERS.values()
        for p in starters
    }
    assert {
        name: counts
        for name, counts in outputs.items()
        if len(counts) < 4 and not (set(counts) == {"true", "false"} and counts["true"] == counts["false"])
    } == {}


@pytest.mark.parametrize("part", PARTS)
def test_every_level_is_in_each_part_and_nothing_else(part: str) -> None:
    assert {problem.difficulty for problem in PARTS[part]} == set(LEVELS)


@pytest.mark.parametrize("part", PARTS)
def test_every_domain_is_in_each_part(part: str) -> None:
    assert {problem.domain for problem in PARTS[part]} == set(DOMAINS)


def test_every_reference_passes_all_its_cases(sandbox: Sandbox) -> None:
    """In one process, as a new one for each of so many problems takes long; no reference sees the names of another."""
    references = {problem.entry_point: str(problem.reference) for problem in EVERY}
    code = f"REFERENCES = {references!r}\n{ASK}"
    cases = [(problem, case) for problem in EVERY for case in problem.cases]
    results = run_cases(sandbox, code, "ask", [[problem.entry_point, case.input] for problem, case in cases])
    encoder = encoder_for(sandbox.limits)
    failed = [
        (problem.entry_point, case.input, result)
        for (problem, case), result in zip(cases, results, strict=True)
        if not passes(case, result, problem, encoder)
    ]
    assert failed == []


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


def test_no_part_asks_what_another_asks() -> None:
    """Twins are twins both ways, so each two parts are compared once. A call that takes long on another problem's
    inputs (the 40th Fibonacci number) tells nothing and is cut short."""
    with open_sandbox(limits=Limits(case_s=0.05)) as hasty:
        twins = {
            (part, problem.entry_point): other.entry_point
            for part, later in (("train", ("benchmark", "holdout")), ("benchmark", ("holdout",)))
            for problem in PARTS[part]
            if (other := twin(problem, [o for name in later for o in PARTS[name]], hasty))
        }
    assert twins == {}


def test_a_slip_in_the_solution_of_a_starter_fails_a_case() -> None:
    unnoticed = [
        (problem.entry_point, code)
        for starters in STARTERS.values()
        for problem in starters
        for code in slips(str(problem.reference))
        if passes_here(code, problem)
    ]
    assert unnoticed == []


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
