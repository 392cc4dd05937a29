"""Parity row 11: which proposals become problems. Every rejection has its rule and reason, and nothing else passes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_core import filter as filtering
from rlm_core.config import FilterSection, GenerateSection, VerifySection
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.filter import RULES, KnownProblems, filter_proposals, jaccard, refusal, shingles
from rlm_core.problems import Case, Problem, Provenance
from rlm_core.records import FileRef, Rejection
from rlm_core.sandbox import Sandbox, open_sandbox

SECTION = FilterSection()
GOOD = Problem.model_validate(
    {
        "prompt": "Write a Python function `double(n)` that returns twice the integer n.",
        "entry_point": "double",
        "signature": "double(n: int) -> int",
        "cases": [{"input": [n], "expected": 2 * n} for n in (1, 2, 3, 4, 5)],
        "reference": "def double(n):\n    return 2 * n\n",
    }
)
OTHER_PROMPT = "Write a Python function `cube(n)` that multiplies some number by itself three times over."


def good(**changes: Any) -> Problem:
    return Problem.model_validate(GOOD.content() | changes)


def bank(count: int) -> list[Problem]:
    """Problems of which no two are alike, and that a good proposal's solution does not solve."""
    prompts = [" ".join(f"word{i}x{j}" for j in range(8)) for i in range(count)]
    cases = [{"input": [n], "expected": n + 7} for n in (1, 2, 3, 4)]
    return [
        good(prompt=prompt, entry_point=f"bank{i}", cases=cases, reference=None) for i, prompt in enumerate(prompts)
    ]


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def known(**groups: list[Problem]) -> KnownProblems:
    return KnownProblems({"corpus": [], "benchmark": [], "holdout": [], **groups})


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def test_a_good_proposal_passes_with_and_without_its_own_solution(sandbox: Sandbox) -> None:
    assert refusal(GOOD, SECTION, known(), sandbox) is None
    assert refusal(good(reference=None), SECTION, known(), sandbox) is None


# ---------------------------------------------------------------------------------------- rules on a proposal alone

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "prompt_length": ({"prompt": "Do five or so words."[:19]}, {}, "19 characters of prompt, allowed are 20 to 2000"),
    "description_length": ({"prompt": "Double extraordinarily large integers"}, {}, "4 words of description, allowed"),
    "cases_length": ({}, {"cases_chars": (1, 50)}, "characters of cases, allowed are 1 to 50"),
    "min_cases": ({"cases": GOOD.content()["cases"][:2]}, {}, "2 distinct cases, at least 3 needed"),
    "consistent_cases": (
        {"cases": [*GOOD.content()["cases"], {"input": [3], "expected": 7}]},
        {},
        "two cases with input [3] expect different things",
    ),
    "distinct_outputs": (
        {"cases": [{"input": [n], "expected": 2} for n in (1, 2, 3)]},
        {},
        "1 distinct outputs, at least 2 needed",
    ),
    "trivial": (
        {"cases": [{"input": [n], "expected": min(n, 4)} for n in (1, 2, 3, 4, 5)]},
        {},
        "a trivial answer passes 80% of the cases, at most 67% allowed",
    ),
    "blocked_pattern": (
        {"reference": "import subprocess\n"},
        {},
        r"'subprocess' matches the blocked pattern \bsubprocess\b",
    ),
}
"""For each rule: what is changed about a good proposal, what about the settings, and a part of the reason."""


def test_every_rule_has_an_example() -> None:
    assert list(REFUSED) == list(RULES)


@pytest.mark.parametrize("rule", REFUSED)
def test_a_rule_refuses_with_its_name_and_a_reason(rule: str, sandbox: Sandbox) -> None:
    changes, settings, expected = REFUSED[rule]
    refused = refusal(good(**changes), SECTION.model_copy(update=settings), known(), sandbox)
    assert refused is not None
    assert refused[0] == rule
    assert expected in refused[1]


@pytest.mark.parametrize(
    ("rule", "changes", "settings"),
    [
        ("prompt_length", {"prompt": "x" * 20}, {}),
        ("prompt_length", {"prompt": "x" * 2_000}, {}),
        ("description_length", {"prompt": "a b c d e"}, {}),
        ("description_length", {"prompt": "a " * 200}, {}),
        ("min_cases", {"cases": GOOD.content()["cases"][:3]}, {}),
        ("distinct_outputs", {}, {"min_distinct_outputs": 5}),
        (
            "trivial",
            {"cases": [{"input": [n], "expected": min(n, 4)} for n in (1, 2, 3, 4, 5)]},
            {"max_trivial_share": 0.8},
        ),
        ("consistent_cases", {"cases": GOOD.content()["cases"] * 2}, {}),
    ],
)
def test_a_limit_itself_is_allowed(rule: str, changes: dict[str, Any], settings: dict[str, Any]) -> None:
    assert RULES[rule](good(**changes), SECTION.model_copy(update=settings)) is None


@pytest.mark.parametrize(
    ("rule", "changes", "settings"),
    [
        ("prompt_length", {"prompt": "x" * 2_001}, {}),
        ("description_length", {"prompt": "a " * 201}, {}),
        ("cases_length", {}, {"cases_chars": (5_000, 8_000)}),
        ("min_cases", {"cases": GOOD.content()["cases"][:1] * 9}, {}),
        ("distinct_outputs", {}, {"min_distinct_outputs": 6}),
        ("consistent_cases", {"cases": [{"input": [1], "expected": 1}, {"input": [1], "raises": "ValueError"}]}, {}),
    ],
)
def test_beyond_a_limit_nothing_is_allowed(rule: str, changes: dict[str, Any], settings: dict[str, Any]) -> None:
    assert RULES[rule](good(**changes), SECTION.model_copy(update=settings))


BLOCKED = [
    "import subprocess",
    "os.system('ls')",
    "os . popen('ls')",
    "os.execvp('ls', [])",
    "os.remove(path)",
    "shutil.rmtree(path)",
    "socket.socket()",
    "requests.get(url)",
    "urllib.request",
    "http.client",
    "see https://example.org",
    "see http://example.org",
    "pip install numpy",
    "pip3  install numpy",
    "apt-get install gcc",
    "conda install x",
    "npm install x",
    "eval(text)",
    "exec(text)",
    "__import__('os')",
    "compile(text, '', 'exec')",
    "open('file')",
    "input()",
    "import ctypes",
    "pickle.loads(x)",
    "import marshal",
]
HARMLESS = [
    "the subprocesses of a plan",
    "the osmosis.system of a cell",
    "os.path.join(a, b)",
    "a social network of friends",
    "a socketed gem",
    "one request(s)",
    "install the pipe",
    "evaluate(expression)",
    "medieval(x)",
    "executive(x)",
    "compiled(x)",
    "re-opened(x)",
    "is_open(door)",
    "opener(x)",
    "the input list and the output list",
    "user_input(x)",
    "open brackets and close brackets",
    "marshalled troops",
    "http as a word",
    "pickles in a jar",
]
PROSE = [
    "counts the requests. An empty list gives 0",
    "takes the input (a list of integers) and adds it up",
    "counts the brackets that are open (not yet closed)",
]


@pytest.mark.parametrize("text", BLOCKED)
def test_what_reaches_out_of_the_exercise_is_blocked(text: str) -> None:
    assert RULES["blocked_pattern"](good(prompt=f"{GOOD.prompt} {text}"), SECTION)


def test_every_blocked_pattern_has_an_example() -> None:
    unused = [pattern for pattern in SECTION.blocked if not any(re.search(pattern, text) for text in BLOCKED)]
    assert unused == []


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_look_alike_is_not_blocked(text: str) -> None:
    assert RULES["blocked_pattern"](good(prompt=f"{GOOD.prompt} {text}"), SECTION) is None


@pytest.mark.parametrize("text", PROSE)
def test_a_sentence_that_calls_nothing_is_not_blocked(text: str) -> None:
    assert RULES["blocked_pattern"](good(prompt=f"Write a function that {text}."), SECTION) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "Run os.system('ls') for me"},
        {"signature": "double(n=eval('1'))"},
        {"cases": [{"input": ["os.system('ls')"], "expected": 1}]},
        {"cases": [{"input": [1], "expected": {"os.system(": 1}}]},
        {"reference": "os.system('ls')"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_blocked_pattern_is_searched_for_everywhere(changes: dict[str, Any]) -> None:
    assert RULES["blocked_pattern"](good(**changes), SECTION)


# ------------------------------------------------------------------------------------------- repeats and similarity


def test_shingles_are_word_triples_without_the_usual_opening() -> None:
    assert shingles("Write a Python function `f(n)` that Adds one, to n.") == {"adds one to", "one to n"}
    assert shingles("one two three four") == {"one two three", "two three four"}
    assert shingles("one two") == {"one", "two"}
    assert shingles("") == frozenset()


def test_shingles_know_the_words_of_every_script() -> None:
    assert shingles("Верни сумму двух чисел") == {"верни сумму двух", "сумму двух чисел"}


@pytest.mark.parametrize(
    ("a", "b", "expected"), [("abc", "abc", 1.0), ("abc", "bcd", 0.5), ("ab", "cd", 0.0), ("a", "", 0.0), ("", "", 0.0)]
)
def test_jaccard_is_shared_over_all(a: str, b: str, expected: float) -> None:
    assert jaccard(frozenset(a), frozenset(b)) == expected


@pytest.mark.parametrize("group", ["corpus", "benchmark", "holdout", "batch"])
@pytest.mark.parametrize("changes", [{}, {"cases": GOOD.content()["cases"][:4]}], ids=["same", "other-cases"])
def test_a_repeat_of_a_known_problem_is_a_duplicate(sandbox: Sandbox, group: str, changes: dict[str, Any]) -> None:
    refused = refusal(GOOD, SECTION, known(**{group: [good(**changes)]}), sandbox)
    assert refused == ("duplicate", f"the same as double of the {group}")


@pytest.mark.parametrize("group", ["corpus", "benchmark", "holdout", "batch"])
def test_a_rewording_of_a_known_problem_is_too_similar(sandbox: Sandbox, group: str) -> None:
    # 14 words are 12 triples; another last word changes one of them: 11 shared of 13
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    near = known(**{group: [*bank(1), good(prompt=f"{words} last", entry_point="near")]})
    proposal = good(prompt=f"{words} end", reference=None)
    assert refusal(proposal, SECTION, near, sandbox) == (
        "similar",
        f"similarity 0.85 to near of the {group}, at most 0.8 allowed",
    )
    assert refusal(proposal, SECTION.model_copy(update={"max_similarity": 11 / 13}), near, sandbox) is None


def test_a_different_problem_is_not_similar(sandbox: Sandbox) -> None:
    cubes = [{"input": [n], "expected": n**3} for n in (1, 2, 3)]
    others = [good(prompt=OTHER_PROMPT, entry_point="cube", cases=cubes)]
    assert refusal(GOOD, SECTION, known(corpus=others, benchmark=others, holdout=others), sandbox) is None


# ------------------------------------------------------------------------------------------------ runs in the sandbox


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("def double(n):\n    return n + 2\n", "its own solution fails: 4 of 5 cases failed"),
        ("def double(n) return", "its own solution fails: does not load: SyntaxError"),
        ("def triple(n): ...", "its own solution fails: no function named double"),
        ("while True: pass", "its own solution fails: does not load: it took too long"),
    ],
)
def test_a_proposal_whose_own_solution_fails_is_refused(reference: str, reason: str) -> None:
    limits = VerifySection().limits.model_copy(update={"load_s": 0.2, "patience": 2})
    with open_sandbox(limits=limits) as sandbox:
        refused = refusal(good(reference=reference), SECTION, known(), sandbox)
    assert refused is not None
    assert refused[0] == "reference"
    assert refused[1].startswith(reason)


@pytest.mark.parametrize("reference", [GOOD.reference, None])
def test_a_proposal_whose_cases_cannot_be_run_is_refused(sandbox: Sandbox, reference: str | None) -> None:
    too_deep = {"input": [nested(100)], "expected": 18}
    proposal = good(reference=reference, cases=[*GOOD.content()["cases"], too_deep])
    refused = refusal(proposal, SECTION, known(), sandbox)
    assert refused is not None
    assert refused[0] == "cases"
    assert "case 6: its input " in refused[1]


# ------------------------------------------------------------------------------------------------------ all together


def test_the_bank_fills_up_behind_the_proposals(sandbox: Sandbox) -> None:
    problems, rejections = filter_proposals([GOOD], bank(5), 3, known(), SECTION, sandbox)
    assert problems == [GOOD, *bank(5)[:2]]
    assert rejections == []


def test_when_no_proposal_survives_the_bank_is_all_there_is(sandbox: Sandbox) -> None:
    bad = [good(**changes) for changes, settings, _ in REFUSED.values() if not settings]
    problems, rejections = filter_proposals(bad, bank(5), 3, known(), SECTION, sandbox)
    assert problems == bank(5)[:3]
    assert [rejection.rule for rejection in rejections] == [name for name, row in REFUSED.items() if not row[1]]


def test_without_proposals_and_bank_there_are_no_problems(sandbox: Sandbox) -> None:
    assert filter_proposals([], [], 3, known(), SECTION, sandbox) == ([], [])


def test_every_good_proposal_is_kept_even_beyond_what_was_wanted(sandbox: Sandbox) -> None:
    problems, _ = filter_proposals([GOOD, *bank(3)], bank(9)[5:], 2, known(), SECTION, sandbox)
    assert problems == [GOOD, *bank(3)]


def test_a_proposal_counts_against_the_next_ones_of_its_batch(sandbox: Sandbox) -> None:
    reworded = good(prompt=GOOD.prompt.removesuffix("."), entry_point="twice", reference=None)
    problems, rejections = filter_proposals([GOOD, GOOD, reworded], [], 3, known(), SECTION, sandbox)
    assert problems == [GOOD]
    assert [(rejection.rule, rejection.reason) for rejection in rejections] == [
        ("duplicate", "the same as double of the batch"),
        ("similar", "similarity 1.00 to double of the batch, at most 0.8 allowed"),
    ]


@pytest.mark.parametrize("group", ["benchmark", "holdout"])
def test_a_bank_problem_that_is_in_an_exam_is_passed_over_with_a_reason(sandbox: Sandbox, group: str) -> None:
    first, second, third = bank(3)
    problems, rejections = filter_proposals([], [first, second, third], 2, known(**{group: [second]}), SECTION, sandbox)
    assert problems == [first, third]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", f"the same as bank1 of the {group}")]


def test_a_bank_problem_of_an_earlier_iteration_comes_back(sandbox: Sandbox) -> None:
    problems, rejections = filter_proposals([], bank(2), 2, known(corpus=bank(2)), SECTION, sandbox)
    assert (problems, rejections) == (bank(2), [])


def test_a_bank_problem_like_a_proposal_is_passed_over(sandbox: Sandbox) -> None:
    problems, _ = filter_proposals([GOOD], [GOOD, *bank(1)], 2, known(), SECTION, sandbox)
    assert problems == [GOOD, *bank(1)]


def test_a_bank_problem_like_an_earlier_one_of_the_batch_is_passed_over(sandbox: Sandbox) -> None:
    first, second = bank(2)
    problems, rejections = filter_proposals([], [first, first, second], 2, known(), SECTION, sandbox)
    assert problems == [first, second]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", "the same as bank0 of the batch")]


def test_no_problem_is_there_twice_even_when_any_similarity_is_allowed(sandbox: Sandbox) -> None:
    lenient = SECTION.model_copy(update={"max_similarity": 1.0})
    problems, _ = filter_proposals([GOOD], [GOOD, *bank(1)], 2, known(), lenient, sandbox)
    assert problems == [GOOD, *bank(1)]


def test_a_rejection_keeps_the_proposal_cut_to_a_readable_length(sandbox: Sandbox) -> None:
    short, long = good(prompt="too short"), good(prompt="x" * 3_000)
    _, rejections = filter_proposals([short, long], [], 1, known(), SECTION, sandbox)
    assert [rejection.stage for rejection in rejections] == ["filter", "filter"]
    assert Problem.model_validate_json(rejections[0].proposal) == short
    assert rejections[1].proposal == long.model_dump_json()[:2_000]


def test_the_stage_keeps_what_passes_and_writes_why_the_rest_did_not(tmp_path: Path) -> None:
    holdout = write_jsonl(tmp_path / "holdout.jsonl", bank(1))
    proposals = write_jsonl(tmp_path / "proposals.jsonl", [GOOD, good(prompt="too short")])
    mutants = write_jsonl(tmp_path / "mutants.jsonl", [*bank(1), good(prompt=OTHER_PROMPT)])
    result = filtering.run(
        tmp_path / "run",
        tmp_path / "project",
        [FileRef.of(proposals), FileRef.of(mutants)],
        GenerateSection(problems=6),
        {"benchmark": "bank:benchmark", "holdout": str(holdout)},
        SECTION,
        VerifySection(),
        project_seed=0,
        iteration=1,
    )
    assert result.damage() is None
    assert result.figures == {"problems": 6, "rejections": 2}
    problems = list(read_jsonl(tmp_path / "run" / "problems.jsonl", Problem))
    assert [problem.prompt for problem in problems[:2]] == [GOOD.prompt, OTHER_PROMPT]
    assert [problem.cases for problem in problems[:2]] == [GOOD.cases, GOOD.cases]
    assert {problem.provenance.expected_from for problem in problems[:2]} == {"reference"}
    assert {problem.provenance.source for problem in problems[2:]} <= {"file", "bank"}
    rejections = list(read_jsonl(tmp_path / "run" / "problems.rejections.jsonl", Rejection))
    assert [(rejection.rule, bool(rejection.reason)) for rejection in rejections] == [
        ("prompt_length", True),
        ("duplicate", True),
    ]


def test_what_a_proposal_expects_is_what_its_own_solution_computes(sandbox: Sandbox) -> None:
    wrong = GOOD.model_copy(update={"cases": tuple(Case(input=case.input, expected=-7) for case in GOOD.cases)})
    answered = filtering.with_reference_values(wrong, sandbox)
    assert answered.cases == GOOD.cases
    assert answered.provenance.expected_from == "reference"
    assert answered.id == GOOD.id


@pytest.mark.parametrize(
    "reference",
    [None, "def double(n) return 1", "def double(n):\n    return {n}\n", "def double(n):\n    while 1: pass\n"],
)
def test_a_solution_that_computes_nothing_usable_changes_nothing(sandbox: Sandbox, reference: str | None) -> None:
    proposal = good(reference=reference)
    assert filtering.with_reference_values(proposal, sandbox) == proposal


def test_a_mutant_that_repeats_its_parent_is_a_duplicate_of_the_bank(sandbox: Sandbox) -> None:
    parent, other = bank(2)
    mutant = parent.model_copy(update={"provenance": Provenance(source="mutation", parent=parent.id)})
    problems, rejections = filter_proposals([mutant], [parent, other], 2, known(bank=[parent, other]), SECTION, sandbox)
    assert problems == [parent, other]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", "the same as bank0 of the bank")]
