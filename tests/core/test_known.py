"""What repeats a known problem: its words, its runs of words, its solution under other names."""

import random
from typing import Any

import pytest

from rlm_core.config import FilterSection
from rlm_core.problems import Problem
from rlm_core.proposals.known import KnownProblems, jaccard, repeats, shingles
from rlm_core.proposals.ngrams import Grams, code_tokens, whole_program

SOLUTION = """def merged(left, right):
    result = []
    while left and right:
        source = left if left[0] <= right[0] else right
        result.append(source.pop(0))
    return result + left + right
"""


def problem(prompt: str, reference: str | None = None, name: str = "f") -> Problem:
    content: dict[str, Any] = {"prompt": prompt, "entry_point": name, "cases": [{"input": [1], "expected": 1}]}
    return Problem.model_validate(content | {"reference": reference})


EXAM = problem("Merge two sorted lists of numbers into one sorted list without using any sorting.", SOLUTION, "merged")
KNOWN = KnownProblems({"holdout": [EXAM], "bank": [problem("Another thing that is asked.", SOLUTION)]})


def refused(candidate: Problem, **settings: Any) -> tuple[str, Any, Any] | None:
    found = repeats(candidate, KNOWN, KNOWN.names, FilterSection(**settings))
    return (found.rule, found.value, found.limit) if found else None


def test_an_exam_solution_under_other_names_is_contaminated() -> None:
    other = SOLUTION.replace("merged", "zip_up").replace("left", "a").replace("right", "b").replace("result", "out")
    candidate = problem("Do something that nobody would call by that word, please.", f"# mine\n{other}")
    assert refused(candidate) == ("contaminated", 1.0, 0.5)
    assert refused(candidate, max_contamination=1.0) is None


def test_an_exam_request_within_a_longer_one_is_contaminated() -> None:
    filler = " ".join(f"word{n}" for n in range(40))
    candidate = problem(f"{filler} {EXAM.prompt} {filler}")
    assert refused(candidate) == ("contaminated", 1.0, 0.5)


SHORT = "def count_up(n):\n    return list(range(1, n + 1))\n"
"""18 tokens: shorter than a run."""


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ("def up_to(limit):\n    return list(range(1, limit + 1))\n", True),
        ("def up_to(limit: int) -> list[int]:\n    'All of them.'\n    return list(range(1, limit + 1))  # up\n", True),
        ("def up_to(limit):\n    return list(range(0, limit + 1))\n", False),
        ("def up_to(limit, more):\n    return list(range(1, limit + 1))\n", False),
    ],
)
def test_a_short_exam_solution_in_other_words_and_names_is_contaminated_when_it_is_the_whole(
    code: str, same: bool
) -> None:
    known = KnownProblems({"benchmark": [problem("Count from one on.", SHORT, "count_up")]})
    candidate = problem("Every whole number that does not exceed a bound, in ascending order.", code, "up_to")
    found = repeats(candidate, known, known.names, FilterSection())
    assert (found and (found.rule, found.value, found.limit)) == (("contaminated", 1.0, 0.5) if same else None)


def test_which_name_stands_where_counts_in_a_whole_program() -> None:
    one, other = (f"def f(a, b):\n    return [{x} - {y} + 1 for _ in range(9)]" for x, y in ("ab", "ba"))
    assert whole_program(one) != whole_program(other)
    assert whole_program(one) == whole_program(one.replace("a,", "left,").replace("a -", "left -"))


def test_what_many_programs_are_by_chance_is_not_contaminated() -> None:
    """`return a + b` is a sum of numbers, a longer text or a longer list; the rule `twin` knows by what it is asked."""
    adds = "def add(a, b):\n    return a + b\n"
    known = KnownProblems({"benchmark": [problem("The sum of both.", adds, "add")]})
    assert repeats(problem("Put one word behind the other.", adds), known, known.names, FilterSection()) is None


def test_a_solution_that_only_the_bank_has_is_not_contaminated() -> None:
    bank = KnownProblems({"bank": [EXAM]})
    assert repeats(problem("Some other request.", SOLUTION), bank, bank.names, FilterSection()) is None


def test_part_of_a_solution_is_a_share_of_it() -> None:
    half = "\n".join(SOLUTION.splitlines()[:4])
    share = Grams.of(EXAM).share_in(Grams.of(problem("Unlike.", half)))
    assert 0.1 < share < 0.9


@pytest.mark.parametrize("code", ["def f(:", "", "x = '", "(" * 3_000, "\0"])
def test_what_is_no_program_has_no_tokens(code: str) -> None:
    assert code_tokens(code) == []


def test_names_of_others_count_and_own_ones_do_not() -> None:
    assert code_tokens("def f(a): return max(a)") == code_tokens("def g(b):\n    return max(b)")
    assert code_tokens("def f(a): return max(a)") != code_tokens("def f(a): return min(a)")


def test_the_nearest_is_the_one_that_comparing_with_each_finds() -> None:
    rng = random.Random(0)
    words = ["adds", "all", "even", "odd", "list", "numbers", "returns", "the"]
    prompts = [" ".join(rng.choices(words, k=rng.randint(1, 7))) for _ in range(60)]
    known = KnownProblems({"corpus": [problem(prompt, name=f"f{i}") for i, prompt in enumerate(prompts)]})
    for asked in [" ".join(rng.choices(words, k=6)) for _ in range(20)]:
        best = max(jaccard(shingles(asked), shingles(prompt)) for prompt in prompts)
        for above in (0.0, 0.2, 0.5, best):
            assert known.nearest(problem(asked), ["corpus"], above)[0] == (best if best > above else 0.0)


# ------------------------------------------------------------------------------------------------------- reasoning-gym

TEMPLATE = "Your task is to count how many legs there are in total. How many legs are there if you have {}?"


def exercise(
    animals: str, number: int = 0, data_set: str = "leg_counting", prompt: str = "", name: str = "leg_counting"
) -> Problem:
    question = TEMPLATE.format(animals)
    entry = {"question": question, "answer": "8", "metadata": {"source_index": number}}
    content = {"verifier": {"kind": "reasoning_gym", "dataset": data_set, "entry": entry}, "reference": "8"}
    return Problem.model_validate(content | {"prompt": prompt or question, "entry_point": name})


ASKED = KnownProblems({"benchmark": [exercise("2 dogs")], "batch": [exercise("2 cats")]})


@pytest.mark.parametrize(
    ("candidate", "rule"),
    [
        (exercise("2 cows"), None),
        (exercise("2 dogs"), "duplicate"),
        (exercise("2 dogs", number=7), "duplicate"),  # what it has with another seed
        (exercise("2 dogs", prompt="Reply with a number. How many?", name="answer"), "duplicate"),  # from a file
        (exercise("2 cats", number=7), "duplicate"),
        (exercise("2 cows", data_set="leg_sorting"), "similar"),
        (problem(TEMPLATE.format("2 cows")), "similar"),
    ],
)
def test_exercises_of_one_data_set_are_the_same_when_they_ask_the_same(candidate: Problem, rule: str | None) -> None:
    found = repeats(candidate, ASKED, ASKED.names, FilterSection())
    assert (found and found.rule) == rule


def test_template_words_that_only_other_exercises_share_hide_no_likeness_to_other_problems() -> None:
    known = KnownProblems({"benchmark": [exercise("2 dogs"), problem(TEMPLATE.format("2 cows"), name="legs")]})
    found = repeats(exercise("2 cows"), known, known.names, FilterSection())
    assert found is not None
    assert (found.rule, found.reason) == ("similar", "similarity 1.00 to legs of the benchmark, at most 0.8 allowed")


def test_with_every_likeness_allowed_an_exam_s_request_in_a_longer_one_is_still_found_but_for_its_own_data_set() -> (
    None
):
    longer = "Please. " * 20
    for data_set, rule in (("leg_counting", None), ("leg_sorting", "contaminated")):
        candidate = exercise("2 cows", data_set=data_set, prompt=longer + TEMPLATE.format("2 cows"))
        found = repeats(candidate, ASKED, ASKED.names, FilterSection())
        assert (found and found.rule) == rule


# -------------------------------------------------------------------------------------------------------------- text


def text(prompt: str, reference: str) -> Problem:
    verifier = {"kind": "json_schema", "json_schema": {}}
    return Problem.model_validate({"prompt": prompt, "verifier": verifier, "reference": reference})


def test_two_problems_may_have_the_same_right_answer_in_words() -> None:
    answer = str([[0] * 6] * 6)
    known = KnownProblems({"benchmark": [text("What is left of this board after five steps?", answer)]})
    assert repeats(text("Write a square of noughts, please.", answer), known, known.names, FilterSection()) is None


def test_a_problem_without_a_function_is_called_by_its_words() -> None:
    known = KnownProblems({"holdout": [text("Name the capital of France, and its river.", "[]")]})
    found = repeats(text("Name the capital of France, and its river.", "{}"), known, known.names, FilterSection())
    assert found is not None
    assert found.reason == "the same as 'Name the capital of France, and its river.' of the holdout"
