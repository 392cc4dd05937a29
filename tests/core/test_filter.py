"""Which proposals become problems. Every rejection has its rule and reason, and nothing else passes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from rlm_core import filter as filtering
from rlm_core.choice import longest_unasked_first
from rlm_core.config import FilterSection, GateSection, GenerateSection, RolloutSection, VerifySection
from rlm_core.errors import StageFailed
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.filter import filter_proposals, refusal
from rlm_core.gate import nothing_learnt
from rlm_core.problems import Case, Problem, Provenance
from rlm_core.proposals.claims import with_reference_values
from rlm_core.proposals.known import KnownProblems, jaccard, shingles
from rlm_core.proposals.proof import Prover, open_prover
from rlm_core.proposals.rules import RULES
from rlm_core.records import FileRef, Lineage, PolicyRef, Rejection, StageResult
from rlm_core.sources import read_problems
from rlm_core.state.ledger import ProblemOutcome, open_ledger
from rlm_core.state.project import Project

SECTION = FilterSection()
NOBODY = PolicyRef(base="none", fingerprint="none")
GOOD = Problem.model_validate(
    {
        "prompt": "Write a Python function `double(n)` that returns twice the integer n.",
        "entry_point": "double",
        "signature": "double(n: int) -> int",
        "cases": [{"input": [n], "expected": 2 * n} for n in (1, 2, 3, 4, 5)],
        "reference": "def double(n):\n    return 2 * n\n",
    }
)
CONTENT = GOOD.model_dump(mode="json")
OTHER_PROMPT = "Write a Python function `cube(n)` that multiplies some number by itself three times over."


def good(**changes: Any) -> Problem:
    return Problem.model_validate(CONTENT | changes)


def bank(count: int) -> list[Problem]:
    """Problems of which no two are alike in words or in what they do."""
    return [
        good(
            prompt=" ".join(f"word{i}x{j}" for j in range(8)),
            entry_point=f"bank{i}",
            cases=[{"input": [n], "expected": n + 7 + i} for n in (1, 2, 3, 4, 5)],
            reference=f"def bank{i}(n):\n    return n + {7 + i}\n",
        )
        for i in range(count)
    ]


def run_stage(
    tmp_path: Path,
    made: list[Path],
    generate: GenerateSection,
    holdout: str = "bank:holdout",
    iteration: int = 1,
    reserve: int = 0,
) -> StageResult:
    """The stage, whose files are in `tmp_path / "run"`."""
    return filtering.run(
        tmp_path / "run",
        tmp_path / "project",
        [FileRef.of(path) for path in made],
        generate,
        {"benchmark": "bank:benchmark", "holdout": holdout},
        SECTION,
        VerifySection(),
        project_seed=0,
        iteration=iteration,
        learner=NOBODY,
        rollout=RolloutSection(),
        reserve=reserve,
    )


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


def known(**groups: list[Problem]) -> KnownProblems:
    return KnownProblems({"corpus": [], "benchmark": [], "holdout": [], **groups})


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with open_prover(VerifySection()) as opened:
        yield opened


def test_a_good_proposal_passes(prover: Prover) -> None:
    assert refusal(GOOD, SECTION, known(), prover) is None


def test_a_proposal_without_a_solution_proves_nothing(prover: Prover) -> None:
    refused = refusal(good(reference=None), SECTION, known(), prover)
    assert refused is not None
    assert (refused.rule, refused.reason) == ("reference", "it has no solution")
    assert (refused.value, refused.limit) == (0.0, 1.0)


# ---------------------------------------------------------------------------------------- rules on a proposal alone

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "prompt_length": ({"prompt": "Do five or so words."[:19]}, {}, "19 characters of prompt, allowed are 20 to 2000"),
    "description_length": ({"prompt": "Double extraordinarily large integers"}, {}, "4 words of description, allowed"),
    "min_cases": ({"cases": CONTENT["cases"][:4]}, {}, "4 distinct cases, at least 5 needed"),
    "blocked_pattern": (
        {"reference": "import subprocess\n"},
        {},
        r"'subprocess' matches the blocked pattern \bsubprocess\b",
    ),
    "cases_length": ({}, {"cases_chars": (1, 50)}, "characters of cases, allowed are 1 to 50"),
    "consistent_cases": (
        {"cases": [*CONTENT["cases"], {"input": [3], "expected": 7}]},
        {},
        "two cases with input [3] expect different things",
    ),
    "distinct_outputs": (
        {"cases": [{"input": [n], "expected": n % 2} for n in (1, 2, 3, 4, 5)]},
        {},
        "2 distinct outputs, at least 3 needed",
    ),
    "trivial": (
        {"cases": [{"input": [n], "expected": min(n, 4)} for n in (1, 2, 3, 4, 5)]},
        {},
        "a trivial answer passes 80% of the cases, at most 50% allowed",
    ),
}
"""For each rule: what is changed about a good proposal, what about the settings, and a part of the reason."""


def test_every_rule_has_an_example() -> None:
    assert list(REFUSED) == list(RULES)


@pytest.mark.parametrize("rule", REFUSED)
def test_a_rule_refuses_with_its_name_and_a_reason(rule: str, prover: Prover) -> None:
    changes, settings, expected = REFUSED[rule]
    refused = refusal(good(**changes), SECTION.model_copy(update=settings), known(), prover)
    assert refused is not None
    assert refused.rule == rule
    assert expected in refused.reason
    assert refused.value is not None
    assert refused.limit is not None


@pytest.mark.parametrize(
    ("rule", "changes", "settings"),
    [
        ("prompt_length", {"prompt": "x" * 20}, {}),
        ("prompt_length", {"prompt": "x" * 2_000}, {}),
        ("description_length", {"prompt": "a b c d e"}, {}),
        ("description_length", {"prompt": "a " * 200}, {}),
        ("min_cases", {}, {}),
        ("distinct_outputs", {}, {"min_distinct_outputs": 5}),
        (
            "trivial",
            {"cases": [{"input": [n], "expected": min(n, 4)} for n in (1, 2, 3, 4, 5)]},
            {"max_trivial_share": 0.8},
        ),
        ("consistent_cases", {"cases": CONTENT["cases"] * 2}, {}),
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
        ("min_cases", {"cases": CONTENT["cases"][:1] * 9}, {}),
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
@pytest.mark.parametrize("changes", [{}, {"cases": CONTENT["cases"][:4]}], ids=["same", "other-cases"])
def test_a_repeat_of_a_known_problem_is_a_duplicate(prover: Prover, group: str, changes: dict[str, Any]) -> None:
    refused = refusal(GOOD, SECTION, known(**{group: [good(**changes)]}), prover)
    assert refused is not None
    assert (refused.rule, refused.reason) == ("duplicate", f"the same as double of the {group}")
    assert (refused.value, refused.limit) == (f"double of the {group}", "none")


@pytest.mark.parametrize("group", ["corpus", "benchmark", "holdout", "batch"])
def test_a_rewording_of_a_known_problem_is_too_similar(prover: Prover, group: str) -> None:
    # 14 words are 12 triples; another last word changes one of them: 11 shared of 13
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    near = known(**{group: [*bank(1), good(prompt=f"{words} last", entry_point="near")]})
    proposal = good(prompt=f"{words} end")
    refused = refusal(proposal, SECTION, near, prover)
    assert refused is not None
    assert refused.reason == f"similarity 0.85 to near of the {group}, at most 0.8 allowed"
    assert (refused.rule, refused.limit) == ("similar", 0.8)
    assert refused.value == pytest.approx(11 / 13)
    lenient = SECTION.model_copy(update={"max_similarity": 11 / 13, "max_contamination": 1.0})
    refused = refusal(proposal, lenient, near, prover)
    assert refused is not None
    assert refused.rule == "twin"


def test_a_different_problem_is_not_similar(prover: Prover) -> None:
    cubes = [{"input": [n], "expected": n**3} for n in (1, 2, 3)]
    others = [good(prompt=OTHER_PROMPT, entry_point="cube", cases=cubes)]
    assert refusal(GOOD, SECTION, known(corpus=others, benchmark=others, holdout=others), prover) is None


# ------------------------------------------------------------------------------------------------ runs in the sandbox


@pytest.mark.parametrize(
    ("reference", "reason", "score"),
    [
        ("def double(n):\n    return n + 2\n", "its own solution fails: 4 of 5 cases failed", pytest.approx(0.2)),
        ("def double(n) return", "its own solution fails: does not load: SyntaxError", 0.0),
        ("def triple(n): ...", "its own solution fails: no function named double", 0.0),
        ("while True: pass", "its own solution fails: does not load: it took too long", 0.0),
    ],
)
def test_a_proposal_whose_own_solution_fails_is_refused(reference: str, reason: str, score: float) -> None:
    limits = VerifySection().limits.model_copy(update={"load_s": 0.2, "patience": 2})
    with open_prover(VerifySection(limits=limits)) as prover:
        refused = refusal(good(reference=reference), SECTION, known(), prover)
    assert refused is not None
    assert refused.rule == "reference"
    assert refused.reason.startswith(reason)
    assert (refused.value, refused.limit) == (score, 1.0)


def test_a_proposal_whose_cases_cannot_be_run_is_refused(prover: Prover) -> None:
    too_deep = {"input": [nested(100)], "expected": 18}
    proposal = good(cases=[*CONTENT["cases"], too_deep])
    refused = refusal(proposal, SECTION, known(), prover)
    assert refused is not None
    assert (refused.rule, refused.value, refused.limit) == ("cases", "ProblemError", "none")
    assert "case 6: its input " in refused.reason


# ------------------------------------------------------------------------------------------------------ all together


def test_the_bank_fills_up_behind_the_proposals(prover: Prover) -> None:
    problems, rejections = filter_proposals([GOOD], bank(5), 3, known(), SECTION, prover)
    assert problems == [GOOD, *bank(5)[:2]]
    assert rejections == []


def test_when_no_proposal_survives_the_bank_is_all_there_is(prover: Prover) -> None:
    bad = [good(**changes) for changes, settings, _ in REFUSED.values() if not settings]
    problems, rejections = filter_proposals(bad, bank(5), 3, known(), SECTION, prover)
    assert problems == bank(5)[:3]
    assert [rejection.rule for rejection in rejections] == [name for name, row in REFUSED.items() if not row[1]]


def test_without_proposals_and_bank_there_are_no_problems(prover: Prover) -> None:
    assert filter_proposals([], [], 3, known(), SECTION, prover) == ([], [])


def test_every_good_proposal_is_kept_even_beyond_what_was_wanted(prover: Prover) -> None:
    problems, _ = filter_proposals([GOOD, *bank(3)], bank(9)[5:], 2, known(), SECTION, prover)
    assert problems == [GOOD, *bank(3)]


def test_a_proposal_counts_against_the_next_ones_of_its_batch(prover: Prover) -> None:
    reworded = good(prompt=GOOD.prompt.removesuffix("."))
    kept, other = sorted([GOOD, reworded], key=lambda problem: problem.id)
    problems, rejections = filter_proposals([other, kept, kept], [], 3, known(), SECTION, prover)
    assert problems == [kept]
    assert [(rejection.rule, rejection.reason) for rejection in rejections] == [
        ("similar", "similarity 1.00 to double of the batch, at most 0.8 allowed"),
        ("duplicate", "the same as double of the batch"),
    ]


@pytest.mark.parametrize("group", ["benchmark", "holdout"])
def test_a_bank_problem_that_is_in_an_exam_is_passed_over_with_a_reason(prover: Prover, group: str) -> None:
    first, second, third = bank(3)
    problems, rejections = filter_proposals([], [first, second, third], 2, known(**{group: [second]}), SECTION, prover)
    assert problems == [first, third]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", f"the same as bank1 of the {group}")]


def test_a_bank_problem_of_an_earlier_iteration_comes_back(prover: Prover) -> None:
    problems, rejections = filter_proposals([], bank(2), 2, known(corpus=bank(2)), SECTION, prover)
    assert (problems, rejections) == (bank(2), [])


def test_a_bank_problem_like_a_proposal_is_passed_over(prover: Prover) -> None:
    problems, _ = filter_proposals([GOOD], [GOOD, *bank(1)], 2, known(), SECTION, prover)
    assert problems == [GOOD, *bank(1)]


def test_a_bank_problem_like_an_earlier_one_of_the_batch_is_passed_over(prover: Prover) -> None:
    first, second = bank(2)
    problems, rejections = filter_proposals([], [first, first, second], 2, known(), SECTION, prover)
    assert problems == [first, second]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", "the same as bank0 of the batch")]


def test_no_problem_is_there_twice_even_when_any_similarity_is_allowed(prover: Prover) -> None:
    lenient = SECTION.model_copy(update={"max_similarity": 1.0})
    problems, _ = filter_proposals([GOOD], [GOOD, *bank(1)], 2, known(), lenient, prover)
    assert problems == [GOOD, *bank(1)]


def test_a_rejection_keeps_the_proposal_cut_to_a_readable_length(prover: Prover) -> None:
    short, long = good(prompt="too short"), good(prompt="x" * 3_000)
    _, rejections = filter_proposals([short, long], [], 1, known(), SECTION, prover)
    assert [rejection.stage for rejection in rejections] == ["filter", "filter"]
    assert Problem.model_validate_json(rejections[0].proposal) == short
    assert rejections[1].proposal == long.model_dump_json()[:2_000]


@pytest.mark.parametrize("choice", ["useful", "uniform"])
def test_the_stage_fills_up_with_what_is_solved_sometimes_or_with_the_bank_s_next(
    tmp_path: Path, choice: Literal["useful", "uniform"]
) -> None:
    problems = bank(7)
    path = write_jsonl(tmp_path / "bank.jsonl", problems)
    asked_before = read_problems(str(path))
    passed = [8, 0, 8, 0, 8, 4]  # of the first six; the last was never asked
    outcomes = [
        ProblemOutcome(problem=problem, rollouts=8, passed=each)
        for problem, each in zip(asked_before, passed, strict=False)
    ]
    ended = nothing_learnt(1, GateSection(), Lineage(None, None, 0, 0))
    with open_ledger(Project(tmp_path / "project").ledger) as ledger:
        ledger.commit(ended, 0.3, outcomes, {})
    result = run_stage(tmp_path, [], GenerateSection(problems=1, bank=str(path), choice=choice), iteration=2)
    [chosen] = read_jsonl(Path(result.files["problems"].path), Problem)
    expected = asked_before[5 if choice == "useful" else 6]
    assert chosen.prompt == expected.prompt


def test_the_stage_keeps_what_passes_and_writes_why_the_rest_did_not(tmp_path: Path) -> None:
    holdout = write_jsonl(tmp_path / "holdout.jsonl", bank(1))
    proposals = write_jsonl(tmp_path / "proposals.jsonl", [GOOD, good(prompt="too short")])
    other = good(
        prompt=OTHER_PROMPT, reference="def double(n):\n    return n**3 + n\n", provenance={"source": "mutation"}
    )
    mutants = write_jsonl(tmp_path / "mutants.jsonl", [*bank(1), other])
    result = run_stage(tmp_path, [proposals, mutants], GenerateSection(problems=6), str(holdout))
    assert result.damage() is None
    assert result.figures == {
        "problems": 6,
        "rejections": 2,
        "reserve": 0,
        "invented": 1,
        "claims_checked": 5,
        "claims_wrong": 4,
        "majorities_asked": 0,
        "majorities_found": 0,
        "bank_tried": 0,
        "bank_refused": 0,
    }
    problems = list(read_jsonl(tmp_path / "run" / "problems.jsonl", Problem))
    assert [problem.prompt for problem in problems[:2]] == [GOOD.prompt, OTHER_PROMPT]
    assert problems[0].cases == GOOD.cases
    assert [case.expected for case in problems[1].cases] == [2, 10, 30, 68, 130]
    assert {problem.provenance.expected_from for problem in problems[:2]} == {"reference"}
    assert {problem.provenance.source for problem in problems[2:]} <= {"file", "bank"}
    rejections = list(read_jsonl(tmp_path / "run" / "problems.rejections.jsonl", Rejection))
    assert [(rejection.rule, bool(rejection.reason)) for rejection in rejections] == [
        ("prompt_length", True),
        ("duplicate", True),
    ]


def test_a_bank_of_one_s_own_is_proved_and_each_problem_but_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, *_ = bank(4)
    wrong = bank(4)[1].model_copy(update={"reference": "def bank1(n):\n    return n\n"})
    without = bank(4)[2].model_copy(update={"reference": None})
    few = bank(4)[3].model_copy(update={"cases": bank(4)[3].cases[:4]})
    path = str(write_jsonl(tmp_path / "bank.jsonl", [right, wrong, without, few]))
    generate = GenerateSection(problems=4, bank=path)
    proved: list[str] = []
    refusal_of = Prover.refusal

    def counted(self: Prover, problem: Problem, section: FilterSection) -> Any:
        proved.append(problem.entry_point)
        return refusal_of(self, problem, section)

    monkeypatch.setattr(Prover, "refusal", counted)
    for _ in range(2):
        result = run_stage(tmp_path, [], generate)
        assert (result.figures["bank_tried"], result.figures["bank_refused"]) == (4, 3)
        kept = list(read_jsonl(Path(result.files["problems"].path), Problem))
        rejections = list(read_jsonl(Path(result.files["rejections"].path), Rejection))
        assert [problem.entry_point for problem in kept] == ["bank0"]
        assert sorted((each.rule, each.value, each.limit) for each in rejections) == [
            ("min_cases", 4, 5),
            ("reference", 0.0, 1.0),
            ("reference", 0.0, 1.0),
        ]
    assert sorted(proved) == ["bank0", "bank1"]  # of the others it is plain without a run
    (tmp_path / "project" / "proofs.json").write_text("{")
    run_stage(tmp_path, [], generate)
    assert len(proved) == 4
    trusted = run_stage(tmp_path, [], generate.model_copy(update={"prove_bank": False}))
    assert trusted.figures["problems"] == 4


def test_where_nothing_of_a_bank_is_proved_the_stage_stops_and_says_where_the_reasons_are(tmp_path: Path) -> None:
    path = str(write_jsonl(tmp_path / "bank.jsonl", [good(reference=None)]))
    with pytest.raises(StageFailed, match=r"no problem is left.*bank\.jsonl.*prove_bank: false") as stopped:
        run_stage(tmp_path, [], GenerateSection(problems=1, bank=path))
    reasons = tmp_path / "run" / "problems.rejections.jsonl"
    assert str(reasons) in str(stopped.value)
    assert [each.rule for each in read_jsonl(reasons, Rejection)] == ["reference"]
    with pytest.raises(StageFailed, match=r"says why$"):  # to trust it would not help: all of it is in an exam
        run_stage(tmp_path, [], GenerateSection(problems=1, bank=path), holdout=path)


def test_a_slow_solution_of_a_person_s_problem_is_proved_with_patience() -> None:
    slow = "def f(n):\n    for _ in range(2_000_000):\n        pass\n    return n * 2 + 1\n"
    cases = [{"input": [n], "expected": 2 * n + 1} for n in range(5)]
    problem = good(entry_point="f", reference=slow, cases=cases)
    with open_prover(VerifySection(), patient=True) as prover:
        assert prover.refusal(problem, SECTION) is None


def test_what_is_passed_over_for_the_reserve_is_written_too_and_nothing_twice(tmp_path: Path) -> None:
    """Of five problems the first and the third are in an exam; one is asked, and two are held in reserve."""
    path = write_jsonl(tmp_path / "bank.jsonl", bank(5))
    walk = longest_unasked_first(read_problems(str(path)), [], 0)
    in_exams = [walk[0], walk[2]]
    holdout = write_jsonl(tmp_path / "holdout.jsonl", in_exams)
    generate = GenerateSection(problems=1, bank=str(path), choice="uniform")
    result = run_stage(tmp_path, [], generate, str(holdout), reserve=3)
    assert [p.prompt for p in read_jsonl(tmp_path / "run" / "reserve.jsonl", Problem)] == [
        walk[3].prompt,
        walk[4].prompt,
    ]
    rejections = list(read_jsonl(Path(result.files["rejections"].path), Rejection))
    assert [each.value for each in rejections] == [f"{problem.entry_point} of the holdout" for problem in in_exams]


def test_what_a_proposal_expects_is_what_its_own_solution_computes(prover: Prover) -> None:
    wrong = GOOD.model_copy(update={"cases": tuple(Case(input=case.input, expected=-7) for case in GOOD.cases)})
    answered = with_reference_values(wrong, prover.sandbox)
    assert answered.cases == GOOD.cases
    assert answered.provenance.expected_from == "reference"
    assert answered.id == GOOD.id


@pytest.mark.parametrize(
    "reference",
    [None, "def double(n) return 1", "def double(n):\n    return {n}\n", "def double(n):\n    while 1: pass\n"],
)
def test_a_solution_that_computes_nothing_usable_changes_nothing(prover: Prover, reference: str | None) -> None:
    proposal = good(reference=reference)
    assert with_reference_values(proposal, prover.sandbox) == proposal


def test_a_mutant_that_repeats_its_parent_is_a_duplicate_of_the_bank(prover: Prover) -> None:
    parent, other = bank(2)
    mutant = parent.model_copy(update={"provenance": Provenance(source="mutation", parent=parent.id)})
    problems, rejections = filter_proposals([mutant], [parent, other], 2, known(bank=[parent, other]), SECTION, prover)
    assert problems == [parent, other]
    assert [(r.rule, r.reason) for r in rejections] == [("duplicate", "the same as bank0 of the bank")]
