"""What is proved of a user's own problems, by whatever they are judged, and of those without a reference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlm_core.config import FilterSection, GenerateSection, MajoritySection, VerifySection
from rlm_core.inventions import Inventions, in_words
from rlm_core.problems import Problem
from rlm_core.proposals.bank_proofs import Answerer, open_bank_proofs
from rlm_core.records import Refusal
from tests import tiny
from tests.command import Rlm

FUNCTION = "tests.core.test_bank_proofs:says_yes"
OTHERS = ("tests.core.test_bank_proofs:says_little", "tests.core.test_bank_proofs:first_line")
VERIFY = VerifySection(functions=(FUNCTION, *OTHERS))
WITHOUT = tiny.problem(2).model_copy(update={"reference": None})
RIGHT, WRONG = (f"```python\n{tiny.answer(increment)}```" for increment in (2, 3))


def says_yes(text: str) -> bool:
    return text == "yes"


def says_little(text: str) -> bool:
    return len(text) < 40


def first_line(text: str) -> bool:
    return text.splitlines()[0] == "yes"


def judged_by(reference: str | None, **verifier: Any) -> Problem:
    return Problem.model_validate({"prompt": "Do as I say.", "verifier": verifier, "reference": reference})


def proved(problem: Problem) -> Problem | Refusal:
    with open_bank_proofs([problem], VERIFY, FilterSection()) as proofs:
        return proofs.proved(problem)


PYTEST = {"kind": "pytest", "tests": "from main import f\n\ndef test_f():\n    assert f(1) == 3\n"}
ALL = {"kind": "all", "of": [PYTEST, {"kind": "regex", "pattern": r"n \+ 2"}]}
VERIFIERS = {
    "text": ({"kind": "exact", "expected": "yes"}, "yes", "no"),
    "function": ({"kind": "function", "function": FUNCTION}, "yes", "no"),
    "pytest": (PYTEST, tiny.answer(2), tiny.answer(3)),
    "composed": (ALL, tiny.answer(2), "def f(n):\n    return 2 + n\n"),
}


@pytest.mark.parametrize(("verifier", "right", "wrong"), VERIFIERS.values(), ids=VERIFIERS)
def test_where_there_are_no_cases_a_reference_has_to_pass_and_without_one_a_problem_is_trusted(
    verifier: dict[str, Any], right: str, wrong: str
) -> None:
    for reference in (None, right):
        problem = judged_by(reference, **verifier)
        assert proved(problem) == problem
    refused = proved(judged_by(wrong, **verifier))
    assert isinstance(refused, Refusal)
    assert (refused.rule, bool(refused.reason)) == ("reference", True)


TESTS_NOTHING = {"kind": "pytest", "tests": "from main import f\n\ndef test_f():\n    assert f(1) is None\n"}
SHORT = {"kind": "regex", "pattern": r"(?s).{0,60}", "full": True}
EASY = {
    "text": (SHORT, "yes", "an empty answer passes"),
    "function": ({"kind": "function", "function": "tests.core.test_bank_proofs:says_little"}, "yes", "an empty answer"),
    "pytest": (TESTS_NOTHING, "def f(n):\n    return None\n", "an empty answer or a function that does nothing passes"),
    "any": ({"kind": "any", "of": [PYTEST, SHORT]}, tiny.answer(2), "an empty answer or a function that"),
    "all": ({"kind": "all", "of": [TESTS_NOTHING, SHORT]}, "def f(n): pass\n", "an empty answer or a function that"),
}


@pytest.mark.parametrize(("verifier", "right", "reason"), EASY.values(), ids=EASY)
def test_what_an_answer_passes_that_does_no_work_is_refused(verifier: dict[str, Any], right: str, reason: str) -> None:
    refused = proved(judged_by(right, **verifier))
    assert isinstance(refused, Refusal)
    assert (refused.rule, refused.value, refused.limit) == ("trivial", 1.0, "none")
    assert refused.reason.startswith(reason)


def test_that_an_empty_answer_fails_needs_no_reference() -> None:
    refused = proved(judged_by(None, **SHORT))
    assert isinstance(refused, Refusal)
    assert refused.rule == "trivial"
    assert isinstance(proved(judged_by(None, kind="all", of=[SHORT, {"kind": "regex", "pattern": "y"}])), Problem)


def test_a_function_that_cannot_judge_an_empty_answer_is_named() -> None:
    refused = proved(judged_by("yes", kind="function", function="tests.core.test_bank_proofs:first_line"))
    assert isinstance(refused, Refusal)
    assert (refused.rule, refused.value) == ("trivial", "ProblemError")
    assert "first_line raised IndexError" in refused.reason


def test_a_problem_of_cases_without_a_reference_is_refused_and_told_what_would_find_one() -> None:
    refused = proved(WITHOUT)
    assert isinstance(refused, Refusal)
    assert (refused.rule, refused.value, refused.limit) == ("reference", 0.0, 1.0)
    assert "filter.majority.answers" in refused.reason


def by_majority(memory: Path, name: str, *texts: str) -> tuple[Problem | Refusal, int]:
    """What a learner of this name answers comes to, and how often it was asked."""
    asked = 0

    def ask(problems: Sequence[Problem]) -> list[list[str]]:
        nonlocal asked
        asked += len(problems)
        return [list(texts) for _ in problems]

    section = FilterSection(majority=MajoritySection(answers=3))
    with open_bank_proofs([WITHOUT], VERIFY, section, Answerer(name, ask), memory) as proofs:
        return proofs.proved(WITHOUT), asked


def test_a_reference_by_majority_is_marked_and_found_but_once(tmp_path: Path) -> None:
    memory = tmp_path / "proofs.json"
    undecided, asked = by_majority(memory, "base", RIGHT, WRONG, "no code")
    assert isinstance(undecided, Refusal)
    assert (undecided.rule, asked) == ("majority", 1)
    assert by_majority(memory, "base", RIGHT, RIGHT, RIGHT) == (undecided, 0)  # the same learner says the same
    found, asked = by_majority(memory, "adapter", RIGHT, RIGHT, WRONG)
    assert isinstance(found, Problem)
    assert (found.reference, found.provenance.reference_from, asked) == (tiny.answer(2), "majority", 1)
    assert (found.id, found.cases) == (WITHOUT.id, WITHOUT.cases)
    assert by_majority(memory, "another adapter", WRONG, WRONG, WRONG) == (found, 0)


def test_what_most_answers_agree_on_has_to_pass_the_cases(tmp_path: Path) -> None:
    refused, _ = by_majority(tmp_path / "proofs.json", "base", WRONG, WRONG, WRONG)
    assert isinstance(refused, Refusal)
    assert refused.rule == "reference"


def test_only_a_bank_of_one_s_own_is_proved_and_by_default() -> None:
    assert GenerateSection(bank="mine.jsonl").proves_bank
    assert not GenerateSection(bank="mine.jsonl", prove_bank=False).proves_bank
    assert not GenerateSection().proves_bank


def test_the_run_says_how_many_were_refused_and_where_to_read_why() -> None:
    assert in_words(Inventions(bank_tried=9, bank_refused=0)) == ""
    assert in_words(Inventions(bank_tried=9, bank_refused=2)) == (
        "2 of 9 problems of the bank that came up could not be proved and were left out, "
        "problems.rejections.jsonl says why"
    )


def test_a_file_is_proved_by_hand(rlm: Rlm, tmp_path: Path) -> None:
    text = judged_by(None, kind="exact", expected="yes")
    tiny.write_problems(tmp_path / "fine.jsonl", [tiny.problem(2), text])
    done = rlm("prove", "fine.jsonl")
    assert (done.code, done.out.strip()) == (
        0,
        "1 of 2 problems proved, trusted without a reference: 1, refused: 0",
    )
    tiny.write_problems(tmp_path / "mine.jsonl", [tiny.problem(2), WITHOUT.model_copy(update={"entry_point": "g"})])
    done = rlm("prove", "mine.jsonl")
    assert done.code == 1
    assert "1 of 2 problems proved, trusted without a reference: 0, refused: 1" in done.out
    done = rlm("prove", "mine.jsonl", "--json")
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert '"problem": "g", "rule": "reference"' in done.out
    (tmp_path / "loose.yaml").write_text("filter: {min_cases: 9}")
    assert "refused: 2" in rlm("prove", "mine.jsonl", "--config", "loose.yaml").out
