"""Problems composed of primitives: right, distinct, the same for the same seed, and words that fit every step."""

import builtins
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import JsonValue

from rlm_core.config import FilterSection, VerifySection
from rlm_core.filter import filter_proposals
from rlm_core.problems import Problem
from rlm_core.proportions import shares
from rlm_core.proposals.known import KnownProblems, repeats
from rlm_core.proposals.proof import open_prover
from rlm_core.proposals.rules import RULES
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.procedural import problems, source
from rlm_core.sources.procedural.compose import STARTS, STEPS, Link, Program, draw
from rlm_core.sources.procedural.inputs import RANGES
from rlm_core.sources.procedural.primitives import Argument, Step
from rlm_core.sources.procedural.source import Known, probes, problems_of
from rlm_core.sources.procedural.trial import run_programs
from rlm_core.sources.procedural.wording import prompt
from rlm_core.verifiers.cases import judge_cases, run_cases
from rlm_core.verifiers.trivial import best_trivial_share


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def made(sandbox: Sandbox) -> list[Problem]:
    return problems(18, 7, 1, {1: 2.0, 2: 1.0}, sandbox)


def parameters_of(step: Step) -> Sequence[int | str | Argument | None]:
    every = (*step.constants, step.argument) if step.argument else step.constants
    return every or (None,)


def single_programs() -> list[Program]:
    """Each step with each parameter that it can have, on each start that fits."""
    return [
        Program(start, (Link(step, parameter),))
        for step in STEPS
        for parameter in parameters_of(step)
        for start in STARTS
        if start.gives == step.takes
    ]


def test_there_are_as_many_as_asked_for_in_the_proportion_asked_for(made: list[Problem]) -> None:
    assert [sum(problem.difficulty == level for problem in made) for level in ("1", "2")] == [12, 6]


def test_the_same_seed_gives_the_same_problems_and_another_seed_others(made: list[Problem], sandbox: Sandbox) -> None:
    assert problems(18, 7, 1, {1: 2.0, 2: 1.0}, sandbox) == made
    others = problems(18, 8, 1, {1: 2.0, 2: 1.0}, sandbox)
    assert len({problem.prompt for problem in others} & {problem.prompt for problem in made}) < 6


def test_no_problem_comes_twice_in_a_project(sandbox: Sandbox) -> None:
    stretches = [problems(20, 7, iteration, {1: 4.0, 2: 1.0}, sandbox) for iteration in (1, 2)]
    assert [sorted(str(p.difficulty) for p in stretch) for stretch in stretches] == [["1"] * 16 + ["2"] * 4] * 2
    known = KnownProblems({"corpus": []})
    for problem in (problem for stretch in stretches for problem in stretch):
        assert repeats(problem, known, ["corpus"], FilterSection()) is None
        known.add("corpus", problem)


def test_an_iteration_s_stretch_does_not_depend_on_the_earlier_ones_having_been_asked_for(sandbox: Sandbox) -> None:
    first, second = (problems(6, 7, iteration, {1: 1.0}, sandbox) for iteration in (1, 2))
    [whole] = [problems(12, 7, 1, {1: 1.0}, sandbox)]
    assert {problem.id for problem in whole} == {problem.id for problem in first + second}


def test_a_difficulty_that_is_used_up_gives_what_is_left_and_then_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    few: Iterator[Program] = iter(())
    monkeypatch.setattr(source, "draw", lambda *_: next(few, None))
    monkeypatch.setattr(source, "_PATIENCE", 1)
    left = []
    for iteration in (1, 2, 3):
        few = iter([program("numbers", "even", "sum"), program("text", "upper"), program("n", "half")])
        left.append(len(problems(2, 0, iteration, {1: 1.0}, sandbox)))
    assert left == [2, 1, 0]


def test_every_reference_passes_its_own_cases(made: list[Problem], sandbox: Sandbox) -> None:
    wrong = {p.entry_point for p in made if judge_cases(sandbox, str(p.reference), p).status != "passed"}
    assert wrong == set()


def test_every_step_runs_with_every_parameter_and_gives_what_it_says(sandbox: Sandbox) -> None:
    fits = {"int": is_number, "text": is_text, "ints": list_of(is_number), "words": list_of(is_text)}
    programs = single_programs()
    ran = set()
    given = [probes(program.arguments) for program in programs]
    for program, outcomes in zip(programs, run_programs(programs, given, sandbox), strict=True):
        outputs = [outcome[0] for outcome in outcomes if outcome]
        assert all(map(fits[program.gives], outputs)), program.signature
        if outputs:  # two words put together are never several
            ran |= set(program.links)
    assert {link for program in programs for link in program.links} - ran == set()


def test_a_reference_gives_what_its_steps_give_one_after_the_other(sandbox: Sandbox) -> None:
    """Here each step is evaluated by itself: what is expected does not come from the reference."""
    rng = np.random.default_rng(0)
    programs = [program for _ in range(600) if (program := draw(rng, 1 + int(rng.integers(3))))]
    given = [probes(program.arguments) for program in programs]
    for program, inputs, outcomes in zip(programs, given, run_programs(programs, given, sandbox), strict=True):
        assert [step_by_step(program, each) for each in inputs] == outcomes, program.signature


def step_by_step(program: Program, given: Sequence[JsonValue]) -> list[JsonValue]:
    """What a program gives, in a list; an empty one where a step does not make sense."""
    known = {"math": math, **dict(zip([argument.name for argument in program.arguments], given, strict=True))}
    value = eval(program.start.code, dict(known))
    for link in program.links:
        names = {**known, "so_far": value}
        if not eval(link.step.guard.format(x="so_far", k=link.shown), dict(names)):
            return []
        value = eval(link.step.code.format(x="so_far", k=link.shown), dict(names))
    return [value]


def is_number(value: JsonValue) -> bool:
    return type(value) is int


def is_text(value: JsonValue) -> bool:
    return type(value) is str


def list_of(fits: Callable[[JsonValue], bool]) -> Callable[[JsonValue], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def test_cases_tell_right_answers_from_others(made: list[Problem]) -> None:
    for problem in made:
        assert len(problem.cases) >= 5
        assert len({json.dumps(case.expected) for case in problem.cases}) >= 3
        assert best_trivial_share(problem) <= 0.5


def test_no_rule_for_proposals_refuses_one(made: list[Problem]) -> None:
    refused = {(p.prompt, name): why for p in made for name, rule in RULES.items() if (why := rule(p, FilterSection()))}
    assert refused == {}


def test_the_filter_keeps_them_but_for_what_exams_ask(made: list[Problem]) -> None:
    known = KnownProblems({group: read_problems(f"bank:{group}") for group in ("benchmark", "holdout")})
    with open_prover(VerifySection()) as prover:
        kept, rejections = filter_proposals(made, [], 0, known, FilterSection(), prover)
    assert {rejection.rule for rejection in rejections} <= {"twin", "contaminated"}
    assert len(kept) >= 12


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


def step(name: str, takes: str) -> Step:
    return next(each for each in STEPS if (each.name, each.takes) == (name, takes))


def program(start: str, *names: str) -> Program:
    """The program that takes the named argument through the named steps."""
    made = Program(next(each for each in STARTS if [a.name for a in each.arguments] == [start]), ())
    for name in names:
        made = replace(made, links=(*made.links, Link(step(name, made.gives))))
    return made


def sayings(said: Program) -> set[str]:
    """All that a program is ever called, without the opening."""
    rng = np.random.default_rng(0)
    return {prompt(said, rng).partition("` that ")[2] for _ in range(300)}


def test_a_program_is_said_in_many_ways() -> None:
    ways = sayings(program("numbers", "even", "sum"))
    assert {
        "returns the sum of the even numbers in the list `numbers`.",
        "returns the total of the even numbers in the list numbers.",
        "keeps only the even numbers in the list `numbers` and then returns the sum of the resulting numbers.",
        "picks the even numbers in the list numbers and then returns the total of the resulting numbers.",
    } <= ways
    assert len(ways) == 12


@pytest.mark.parametrize(
    "names", [("doubled", "descending"), ("descending", "doubled"), ("positive", "even", "odd", "absolute", "largest")]
)
def test_what_could_be_misread_as_one_phrase_is_told_step_by_step(names: tuple[str, ...]) -> None:
    assert all("returns" not in way.split()[0] for way in sayings(program("numbers", *names)))


def test_an_input_that_the_words_leave_open_has_no_output(sandbox: Sandbox) -> None:
    programs = [program("numbers", "even", "largest"), program("words", "longest"), program("n", "half")]
    given: list[list[list[JsonValue]]] = [[[[1, 3]], [[2, 5]]], [[["ab", "cd"]], [["ab", "cde"]]], [[-3], [3]]]
    assert run_programs(programs, given, sandbox) == [[[], [2]], [[], ["cde"]], [[], [1]]]


@pytest.mark.parametrize(
    ("redundant", "plain"),
    [
        (program("numbers", "ascending", "largest"), program("numbers", "even", "largest")),
        (program("numbers", "squares", "absolute"), program("numbers", "cubes", "absolute")),
        (program("text", "reversed", "upper", "length"), program("text", "without_vowels", "length")),
        (program("text", "words", "spaced"), program("text", "words", "hyphenated")),
    ],
)
def test_a_program_with_steps_that_change_nothing_is_no_problem(
    sandbox: Sandbox, redundant: Program, plain: Program
) -> None:
    [problem] = problems_of([redundant, plain], 0, Known(), sandbox)
    assert problem.entry_point == plain.entry_point


def test_what_was_seen_before_is_no_problem(sandbox: Sandbox) -> None:
    known = Known()
    candidates = [program("numbers", "even", "sum"), program("values", "even", "sum")]
    assert len(list(problems_of(candidates, 0, known, sandbox))) == 1
    assert list(problems_of(candidates, 1, known, sandbox)) == []


def test_a_function_is_named_after_its_last_steps() -> None:
    assert program("numbers", "sum").entry_point == "sum_numbers"
    assert program("numbers", "even", "sum").entry_point == "sum_even"
    assert program("numbers", "even", "squares", "absolute", "sum").entry_point == "sum_absolute_squares"


def test_a_reference_has_a_line_for_each_step() -> None:
    assert program("numbers", "even", "product").source("f") == (
        "import math\n\n\n"
        "def f(numbers):\n"
        "    values = [n for n in numbers if n % 2 == 0]\n"
        "    return math.prod(values)\n"
    )


def test_difficulty_is_what_the_parts_cost_and_an_argument_costs_one_more() -> None:
    over = step("over_{k}", "ints")
    start = program("numbers").start
    assert program("numbers", "even", "sum").difficulty == 1
    assert program("numbers", "different", "sum").difficulty == 2
    assert Program(start, (Link(over, 5), Link(step("sum", "ints")))).difficulty == 1
    assert Program(start, (Link(over, over.argument), Link(step("sum", "ints")))).difficulty == 2


def test_there_are_many_of_the_easiest_and_no_two_say_the_same(sandbox: Sandbox) -> None:
    made = problems(150, 3, 1, {1: 1.0}, sandbox)
    assert len(made) == len({problem.prompt for problem in made}) == 150
    assert {problem.difficulty for problem in made} == {"1"}
    assert {problem.domain for problem in made} == {"arrays", "maths", "strings"}


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
