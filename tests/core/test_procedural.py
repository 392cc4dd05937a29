"""Problems composed of primitives: right, distinct, the same for the same seed, and words that fit every step."""

import builtins
import json
import re
from collections.abc import Iterator

import numpy as np
import pytest

from rlm_core.config import FilterSection
from rlm_core.filter import RULES
from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources.procedural import problems
from rlm_core.sources.procedural.compose import STARTS, STEPS, Link, Program, draw
from rlm_core.sources.procedural.inputs import RANGES
from rlm_core.sources.procedural.source import probes, shares
from rlm_core.sources.procedural.wording import prompt
from rlm_core.verifiers.cases import judge_cases, run_cases
from rlm_core.verifiers.trivial import best_trivial_share


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def made(sandbox: Sandbox) -> list[Problem]:
    return problems(30, 7, {1: 2.0, 2: 1.0}, sandbox)


def single_programs() -> list[Program]:
    """Each step with each parameter that it can have, on each start that fits."""
    return [
        Program(start, (Link(step, parameter),))
        for step in STEPS
        for parameter in [*step.constants, *([step.argument] if step.argument else [])] or [None]
        for start in STARTS
        if start.gives == step.takes
    ]


def test_there_are_as_many_as_asked_for_in_the_proportion_asked_for(made: list[Problem]) -> None:
    assert [sum(problem.difficulty == level for problem in made) for level in ("1", "2")] == [20, 10]


def test_the_same_seed_gives_the_same_problems_and_another_seed_others(made: list[Problem], sandbox: Sandbox) -> None:
    assert problems(30, 7, {1: 2.0, 2: 1.0}, sandbox) == made
    others = problems(30, 8, {1: 2.0, 2: 1.0}, sandbox)
    assert len({problem.prompt for problem in others} & {problem.prompt for problem in made}) < 10


def test_every_reference_passes_its_own_cases(made: list[Problem], sandbox: Sandbox) -> None:
    wrong = {p.entry_point for p in made if judge_cases(sandbox, str(p.reference), p).status != "passed"}
    assert wrong == set()


def test_cases_tell_right_answers_from_others(made: list[Problem]) -> None:
    for problem in made:
        assert len(problem.cases) >= 5
        assert len({json.dumps(case.expected) for case in problem.cases}) >= 3
        assert best_trivial_share(problem) <= 0.5


def test_no_rule_for_proposals_refuses_one(made: list[Problem]) -> None:
    refused = {(p.prompt, name): why for p in made for name, rule in RULES.items() if (why := rule(p, FilterSection()))}
    assert refused == {}


def test_no_two_problems_give_the_same_outputs_for_the_same_inputs(made: list[Problem], sandbox: Sandbox) -> None:
    behaviours: dict[str, str] = {}
    for problem in made:
        inputs = [case.input for other in made for case in other.cases if _kinds(other) == _kinds(problem)]
        results = run_cases(sandbox, str(problem.reference), problem.entry_point, inputs)
        behaviour = json.dumps([inputs, [result.model_dump_json() for result in results]])
        assert behaviours.setdefault(behaviour, problem.prompt) == problem.prompt


def _kinds(problem: Problem) -> list[str]:
    """The types of a problem's arguments."""
    return re.findall(r": ([^,)]+)", str(problem.signature))


def test_every_step_can_be_said_and_names_each_argument() -> None:
    rng = np.random.default_rng(0)
    for program in single_programs():
        for _ in range(4):
            said = prompt(program, rng)
            asked = said.partition("` that ")[2]
            assert asked.endswith(".")
            assert "{" not in said
            assert "  " not in said
            for argument in program.arguments:
                assert argument.name in asked.replace("`", " ").replace(",", " ").rstrip(".").split(), said


def test_a_step_that_is_followed_by_another_can_be_done_first() -> None:
    assert [step.name for step in STEPS if not step.verb] == []


def test_a_name_hides_neither_a_builtin_nor_an_argument() -> None:
    rng = np.random.default_rng(0)
    drawn = [program for _ in range(3_000) if (program := draw(rng, 2))]
    for program in [*single_programs(), *drawn]:
        assert not hasattr(builtins, program.entry_point), program.entry_point
        assert program.entry_point.isidentifier()
        assert program.entry_point not in {argument.name for argument in program.arguments}
        assert len({argument.name for argument in program.arguments}) == len(program.arguments)


def test_probes_are_the_same_for_all_programs_with_such_arguments() -> None:
    first, second = [start for start in STARTS if start.gives == "ints" and not start.name][:2]
    assert first.arguments != second.arguments
    assert probes(first.arguments) == probes(second.arguments)


def test_every_range_is_one_that_inputs_are_drawn_from() -> None:
    arguments = [argument for start in STARTS for argument in start.arguments]
    arguments += [step.argument for step in STEPS if step.argument]
    assert {argument.range for argument in arguments} == set(RANGES)


def test_shares_add_up() -> None:
    assert shares(10, {1: 1.0, 2: 1.0, 3: 1.0}) == {1: 4, 2: 3, 3: 3}
    assert shares(7, {1: 3.0, 3: 1.0}) == {1: 5, 3: 2}
    assert shares(0, {1: 1.0}) == {1: 0}
