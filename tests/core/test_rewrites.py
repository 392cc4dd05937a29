"""Mutants made without the model: what the description says is what the solution does, or there is no mutant."""

from typing import Any

import pytest

from rlm_core.problems import Problem
from rlm_core.proposals.claims import with_reference_values
from rlm_core.sandbox import open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.procedural import problems
from rlm_core.sources.rewrites import rewritten
from rlm_core.verifiers.cases import judge_cases


def problem(what: str, body: str, arguments: str = "words", name: str = "pick", **changes: Any) -> Problem:
    cases = [{"input": [["a", "abcd", "abcdefg"[:n]]], "expected": []} for n in range(1, 7)]
    return Problem.model_validate(
        {
            "prompt": f"Write a Python function `{name}({arguments})` that {what}.",
            "entry_point": name,
            "signature": f"{name}({arguments}: list[str]) -> list[str]",
            "cases": cases,
            "reference": f"def {name}({arguments}):\n    return {body}\n",
            **changes,
        }
    )


LONG = problem("returns a list of the words with more than 3 characters in `words`", "[w for w in words if len(w) > 3]")


def by_change(parents: list[Problem], count: int = 50) -> dict[str | None, list[Problem]]:
    made: dict[str | None, list[Problem]] = {}
    for each in rewritten(parents, count, 0):
        made.setdefault(each.provenance.change, []).append(each)
    return made


def test_a_number_changes_on_both_sides() -> None:
    [mutant] = by_change([LONG])["number"]
    number = int(mutant.prompt.split("more than ")[1].split()[0])
    assert number in (4, 5, 6)
    assert mutant.prompt == LONG.prompt.replace("than 3", f"than {number}").replace("pick(", "solve_words(")
    assert mutant.reference == f"def solve_words(words):\n    return [w for w in words if len(w) > {number}]\n"
    assert mutant.signature == "solve_words(words: list[str]) -> list[str]"


@pytest.mark.parametrize(
    ("change", "said", "done"), [("boundary", "at least 3", ">= 3"), ("opposite", "at most 3", "<= 3")]
)
def test_a_boundary_and_a_condition_change_on_both_sides(change: str, said: str, done: str) -> None:
    [mutant] = by_change([LONG])[change]
    assert said in mutant.prompt
    assert "more than" not in mutant.prompt
    assert done in str(mutant.reference)
    assert mutant.provenance.parent == LONG.id
    assert mutant.provenance.source == "mutation"


@pytest.mark.parametrize(
    "parent",
    [
        problem("returns the teenagers with more than 3 characters in `words`", "[w for w in words if len(w) > 3]"),
        problem("returns the words with more than 3 characters in `words`", "[w for w in words if len(w) >= 4]"),
        problem("returns the words with more than 3 characters in `words`", "[w[3] for w in words if len(w) > 3]"),
        problem("returns 3 if there are more than 3 words in `words`", "3 if len(words) > 3 else 0"),
        problem("returns the words with more than 3 or fewer than 3 characters", "[w for w in words if len(w) != 3]"),
        problem("returns the longest of the words with more than 3 characters", "max(w for w in words if len(w) > 3)"),
        problem("returns more than 3.5 words", "[w for w in words if len(w) > 3.5]"),
        LONG.model_copy(update={"reference": None}),
        LONG.model_copy(update={"provenance": LONG.provenance.model_copy(update={"source": "model"})}),
    ],
    ids=[
        "a-concept",
        "said-otherwise",
        "number-twice",
        "said-twice",
        "two-phrases",
        "open",
        "no-integer",
        "none",
        "model",
    ],
)
def test_what_could_be_said_wrongly_is_not_made(parent: Problem) -> None:
    assert rewritten([parent], 50, 0) == []


ODD = problem(
    "returns True if n is odd",
    "n % 2 == 1",
    "n",
    "odd",
    cases=[{"input": [n], "expected": n % 2 == 1} for n in range(6)],
    signature="odd(n: int) -> bool",
)
EVEN_SUM = problem(
    "returns the sum of the numbers below n that are divisible by 2",
    "sum(range(0, n, 2))",
    "n",
    "even_sum",
    cases=[{"input": [n], "expected": sum(range(0, n, 2))} for n in range(6)],
    signature="even_sum(n: int) -> int",
)


def test_two_problems_of_a_users_file_have_mutants() -> None:
    assert set(by_change([ODD, EVEN_SUM])) == {"opposite", "composed"}


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "int -> bool"},
        {"signature": "n: int"},
        {"reference": "print n"},
        {"reference": "def odd(n):\n    return '\0'\n"},
        {"reference": "def odd(n):\n    return " + "-" * 9_000 + "n\n"},
        {"reference": "def odd(n):\n    return " + "+".join(["n"] * 900) + "\n"},
        {"reference": "def odd(n=1):\n    return n % 2 == 1\n", "cases": [{"input": [], "expected": True}] * 6},
        {"prompt": "Write a Python function `odd(n²)` that returns True if n² is odd."},
        {"prompt": "Write a Python function `odd(,)` that returns True if it is odd."},
        {"prompt": "Write a Python function `is_odd(n)` that returns True if n is odd."},
    ],
    ids=[
        "types-only",
        "no-name",
        "no-syntax",
        "nul",
        "too-deep-to-read",
        "too-deep-to-write",
        "no-input",
        "no-name-of-an-argument",
        "no-argument",
        "another-name",
    ],
)
def test_what_is_written_otherwise_in_a_users_file_makes_no_mutant_and_stops_nothing(changes: dict[str, Any]) -> None:
    assert rewritten([Problem.model_validate(ODD.model_dump(mode="json") | changes), EVEN_SUM], 50, 0) == []


def test_a_number_too_long_to_be_read_is_not_changed() -> None:
    what = f"returns the words with more than {'9' * 5_000} characters in `words`"
    assert by_change([problem(what, "[w for w in words if len(w) > 9]")]) == {}


def test_the_opposite_of_yes_or_no_is_right_whatever_is_asked() -> None:
    cases = [{"input": [n], "expected": n in (13, 17)} for n in (1, 5, 13, 17, 20)]
    teens = problem("returns True if n is a teen, and False otherwise", "12 < n < 20", "n", "teen", cases=cases)
    [mutant] = rewritten([teens], 50, 0)
    assert (
        mutant.prompt == "Write a Python function `not_teen(n)` that returns False if n is a teen, and True otherwise."
    )
    with open_sandbox() as sandbox:
        answered = with_reference_values(mutant, sandbox)
    assert [case.expected for case in answered.cases] == [True, True, False, False, True]


def test_one_function_is_applied_to_what_another_returns_where_that_is_like_its_own_inputs() -> None:
    double = problem(
        "returns twice n", "2 * n", "n", "double", cases=[{"input": [n], "expected": 2 * n} for n in (1, 2, 3, 4, 5)]
    )
    spell = problem(
        "returns n as a string", "str(n)", "n", "spell", cases=[{"input": [n], "expected": str(n)} for n in (0, 3, 10)]
    )
    [mutant] = rewritten([double, spell], 50, 0)
    assert mutant.prompt == (
        "Write a Python function `spell_of_double(n)` that returns `spell(double(n))`. "
        "There `double(n)` returns twice n, and `spell(n)` returns n as a string. Write these two functions too."
    )
    assert mutant.provenance.composed_with == spell.id
    with open_sandbox() as sandbox:
        answered = with_reference_values(mutant, sandbox)
    assert [case.expected for case in answered.cases] == ["2", "4", "6", "8", "10"]
    few = spell.model_copy(update={"cases": spell.cases[:2]})  # up to 3 only
    assert rewritten([double, few], 50, 0) == []


HALVES = [{"input": [[n, 2 * n]], "expected": [n, 2 * n]} for n in range(1, 7)]
SAME = problem("returns the numbers as they are", "xs", "xs", "same", cases=HALVES)
MEAN = problem(
    "returns the mean of the numbers",
    "sum(xs) / len(xs)",
    "xs",
    "mean",
    cases=[{"input": [[n, 2 * n]], "expected": 1.5 * n} for n in range(1, 7)],
    float_tolerance=1e-6,
)


def test_what_two_functions_return_together_is_compared_as_the_outer_one_wants_it() -> None:
    [mutant] = by_change([SAME, MEAN])["composed"]
    assert (mutant.entry_point, mutant.float_tolerance, mutant.unordered) == ("mean_of_same", 1e-6, False)
    tail = problem("returns the numbers but the first", "xs[1:]", "xs", "tail", cases=HALVES, unordered=True)
    made = {each.entry_point: each for each in by_change([SAME, tail])["composed"]}
    assert {name: each.unordered for name, each in made.items()} == {"tail_of_same": True}
    with open_sandbox() as sandbox:
        answered = with_reference_values(mutant, sandbox)
        nearly = str(mutant.reference).replace("sum(xs) / len(xs)", "sum(xs) / len(xs) + 1e-9")
        assert judge_cases(sandbox, nearly, answered).status == "passed"


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ({"unordered": True}, {}),
        ({"float_tolerance": 1e-3}, {}),
        ({"preamble": "import math\n"}, {}),
        ({}, {"preamble": "import math\n"}),
    ],
    ids=["in-any-order", "less-exact", "preamble-inside", "preamble-outside"],
)
def test_nothing_is_composed_where_what_is_right_inside_is_not_one_value_or_a_preamble_would_be_lost(
    inner: dict[str, Any], outer: dict[str, Any]
) -> None:
    assert by_change([SAME, MEAN]) != {} == by_change([SAME.model_copy(update=inner), MEAN.model_copy(update=outer)])


def test_what_a_mutant_expects_comes_from_a_run_of_its_own_solution() -> None:
    with open_sandbox() as sandbox:
        parents = [*problems(20, 3, 1, {1: 1, 2: 1}, sandbox), *read_problems("bank:train[starter]")[:20]]
        mutants = rewritten(parents, 12, 1)
        answered = [with_reference_values(mutant, sandbox) for mutant in mutants]
        wrong = [p.prompt for p in answered if judge_cases(sandbox, str(p.reference), p).status != "passed"]
    assert len(mutants) == 12
    assert wrong == []
    assert {p.provenance.expected_from for p in answered} == {"reference"}
    assert {"number", "boundary", "composed"} <= {p.provenance.change for p in answered}


def test_the_same_seed_makes_the_same_mutants_and_another_one_others() -> None:
    parents = read_problems("bank:train[starter]")
    assert rewritten(parents, 6, 1) == rewritten(parents, 6, 1) != rewritten(parents, 6, 2)
    assert len(rewritten(parents, 6, 1)) == 6
    assert rewritten(parents, 0, 1) == []
