"""Problems that ask for code beside such that do not: asked, answered, judged and paid by the same stages."""

from pathlib import Path
from typing import Any

import pytest

from rlm_core import generate, judging, mutate, rollout, verify
from rlm_core.answers import problem_prompt
from rlm_core.config import EvaluateSection, GenerateSection, MutateSection, RolloutSection, VerifySection
from rlm_core.exams.exam import Exam
from rlm_core.exams.key import exam_key
from rlm_core.exams.sit import sit_exam
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.model.decoding import Request
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.proposers import model
from rlm_core.records import FileRef, PolicyRef, Rollout, Verdict
from rlm_core.rounds import Shard
from rlm_core.sandbox import Limits
from rlm_core.sources.suite import Suite
from rlm_core.summary import problem_metrics, problem_outcomes
from rlm_core.verifiers import Answer, prepare
from rlm_core.verifiers.trivial import best_trivial_share
from tests import tiny

SUFFIX = " Reply with only the code in a python block."


def text_problem(prompt: str, **verifier: Any) -> Problem:
    return Problem.model_validate({"prompt": prompt, "verifier": verifier})


def prompt(variant: int) -> str:
    """One that the tiny model knows how to answer: with `return n + 1`, 2 or 3."""
    return tiny.problem(2, variant).prompt


ADDS_TWO = r"return n \+ 2"
CODE = tiny.problem(2, 1)
NUMBER = text_problem(prompt(2), kind="numeric", expected=2)
WORDS = text_problem(prompt(3), kind="regex", pattern=ADDS_TWO)
GRADED = text_problem(prompt(4), kind="function", function="tests.core.test_mixed_problems:graded")
JSON = text_problem(prompt(5), kind="json_schema", json_schema={"type": "object"})
BOTH = CODE.model_copy(
    update={
        "prompt": prompt(6),
        "verifier": Problem.model_validate(
            {
                "prompt": "p",
                "verifier": {"kind": "all", "of": [{"kind": "cases"}, {"kind": "regex", "pattern": ADDS_TWO}]},
                "entry_point": "f",
                "cases": [{"input": [1], "expected": 3}],
            }
        ).verifier,
    }
)
TESTED = Problem.model_validate(
    {
        "prompt": prompt(7),
        "reference": tiny.answer(2),
        "verifier": {"kind": "pytest", "tests": "from main import f\n\ndef test_f():\n    assert f(1) == 3\n"},
    }
)
MIXED = [CODE, NUMBER, WORDS, GRADED, JSON, BOTH, TESTED]
VERIFY = VerifySection(
    partial_credit=0.5, functions=("tests.core.test_mixed_problems:graded",), limits=Limits(case_s=1.0)
)
ROLLOUT = RolloutSection(group_size=16, max_tokens=20, shard_problems=7, prompt_suffix="")


def graded(text: str) -> tuple[float, str]:
    """What a user's own verifier may look like."""
    return (1.0, "") if "+ 2" in text else (0.5, "not 2") if "+ 3" in text else (0.0, "not even 3")


def test_only_who_asks_for_code_is_told_how_code_is_to_look() -> None:
    nameless = CODE.model_copy(update={"prompt": "Add two to n."})
    assert problem_prompt(nameless, SUFFIX) == f"Add two to n. Name the function `f`.{SUFFIX}"
    assert problem_prompt(text_problem("Say yes.", kind="exact", expected="yes"), SUFFIX) == "Say yes."
    tested = Problem.model_validate({"prompt": "Write a stack.", "verifier": {"kind": "pytest", "tests": "x"}})
    assert problem_prompt(tested, SUFFIX) == f"Write a stack.{SUFFIX}"
    assert problem_prompt(BOTH, SUFFIX).endswith(SUFFIX)


@pytest.mark.parametrize(
    ("problem", "asks_for_code", "only_code_counts"),
    [(CODE, True, True), (NUMBER, False, False), (BOTH, True, False)],
)
def test_an_answer_whose_text_counts_is_not_cut_after_its_code(
    problem: Problem, asks_for_code: bool, only_code_counts: bool
) -> None:
    assert (problem.asks_for_code, problem.only_code_counts) == (asks_for_code, only_code_counts)


def test_answers_are_ended_after_their_code_request_by_request(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "_ends_block", lambda _self, tokens: len(tokens) == 3)
    tokens = policy.prompt_tokens(prompt(1))
    requests = [Request(tokens, seed, only_code_counts=seed % 2 == 0) for seed in range(4)]
    answers = policy.sample(requests, Sampling(1.0, max_tokens=8, stop_after_code=True), batch_size=4)
    assert [len(answer.tokens) == 3 for answer in answers] == [True, False, True, False]
    assert [answer.finish_reason == "code" for answer in answers] == [True, False, True, False]
    never = policy.sample(requests, Sampling(1.0, max_tokens=8), batch_size=4)
    assert "code" not in {answer.finish_reason for answer in never}


def test_a_mixed_bank_goes_from_rollout_to_rewards(tiny_model: Path, tmp_path: Path) -> None:
    problems = FileRef.of(write_jsonl(tmp_path / "problems.jsonl", MIXED))
    incumbent = PolicyRef(base=str(tiny_model), fingerprint="f")
    shard = Shard(number=0, source="problems", first=0, problems=len(MIXED), of=1)
    sampled = rollout.run(tmp_path, incumbent, problems, shard, ROLLOUT, seed=3).files["rollouts"]
    judged = verify.run(tmp_path, problems, sampled, VERIFY)
    rollouts = list(read_jsonl(Path(sampled.path), Rollout))
    verdicts = list(read_jsonl(Path(judged.files["verdicts"].path), Verdict))
    assert judged.figures["infrastructure_faults"] == 0

    def paid(problem: Problem, text: str) -> float:
        right = "return n + 2" in text
        if problem == GRADED:
            return 1.0 if right else 0.25 if "+ 3" in text else 0.0  # half of a score of 0.5
        return float(right and problem != JSON)

    by_id = {problem.id: problem for problem in MIXED}
    expected = [paid(by_id[each.problem_id], each.text) for each in rollouts]
    assert [verdict.reward for verdict in verdicts] == expected
    assert {0.0, 0.25, 1.0} == set(expected)
    ran = {by_id[verdict.problem_id].prompt for verdict in verdicts if verdict.sandbox != "none"}
    assert ran == {CODE.prompt, BOTH.prompt, TESTED.prompt}
    metrics = problem_metrics(MIXED, rollouts, verdicts)
    assert [each.rollouts for each in metrics] == [16] * 7
    assert metrics[4].passed == 0 < metrics[1].passed < 16
    kept = problem_outcomes(MIXED, rollouts, verdicts)
    assert [bool(each.passed_text) for each in kept] == [True] * 4 + [False, True, True]


def test_an_exam_may_ask_for_no_code_and_needs_no_sandbox(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "open_sandbox", lambda *_: pytest.fail("a sandbox was opened"))
    section = EvaluateSection(samples=8, max_tokens=20)
    exam = Exam("texts", Suite((NUMBER, WORDS, JSON)), section, ROLLOUT, VERIFY, seed=1)
    sat = sit_exam(exam, PolicyRef(base=str(tiny_model), fingerprint="f"))
    report, answers, verdicts = sat.report, sat.answers, sat.verdicts
    assert report.complete
    assert [score.correct for score in report.problems][2] == 0
    assert report.pass_at[1] == pytest.approx(sum("n + 2" in answer.text for answer in answers[:16]) / 24)
    assert {verdict.sandbox for verdict in verdicts} == {"none"}


def test_an_exam_is_another_one_when_a_users_function_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(section: VerifySection) -> str:
        exam = Exam("s", Suite((NUMBER,)), EvaluateSection(), RolloutSection(), section, seed=1)
        return exam_key(PolicyRef(base="b", fingerprint="f"), exam)

    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "exam_checks.py"
    file.write_text("def f(text): return True\n")
    section = VerifySection(functions=("exam_checks:f",))
    before = key(section)
    assert before == key(section) != key(VerifySection())
    file.write_text("def f(text): return False\n")
    assert key(section) != before


def test_only_problems_with_cases_are_examples_and_parents(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Problem] = []

    def noted(problem: Problem) -> str:
        shown.append(problem)
        return "{}"

    monkeypatch.setattr(model, "problem_json", noted)
    monkeypatch.setattr(mutate, "problem_json", noted)
    incumbent = PolicyRef(base=str(tiny_model), fingerprint="f")
    bank = tiny.write_problems(tmp_path / "bank.jsonl", MIXED)
    section = GenerateSection(bank=bank, problems=2, sources={"model": 1}, max_tokens=4)
    proposals = generate.run(tmp_path, incumbent, section, VerifySection(), 1, 1).files["problems"]
    assert [problem.id for problem in shown] == [CODE.id] * 2
    shown.clear()
    mutate.run(tmp_path, incumbent, proposals, bank, MutateSection(parents=4, max_tokens=4), 0, 1)
    assert [problem.id for problem in shown if "sum_positive" not in problem.prompt][1:] == [CODE.id]


def test_a_bank_without_cases_still_makes_an_iteration(tiny_model: Path, tmp_path: Path) -> None:
    incumbent = PolicyRef(base=str(tiny_model), fingerprint="f")
    bank = tiny.write_problems(tmp_path / "bank.jsonl", [NUMBER, WORDS])
    made = generate.run(
        tmp_path,
        incumbent,
        GenerateSection(bank=bank, problems=1, sources={"model": 1}, max_tokens=4),
        VerifySection(),
        1,
        1,
    )
    assert made.figures["problems"] == 0
    mutants = mutate.run(tmp_path, incumbent, made.files["problems"], bank, MutateSection(max_tokens=4), 0, 1)
    assert mutants.figures == {"problems": 0, "rejections": 0, "asked": 0}


@pytest.mark.parametrize("problem", [NUMBER, GRADED, BOTH])
def test_nothing_trivial_is_known_where_cases_do_not_decide_alone(problem: Problem) -> None:
    assert best_trivial_share(problem) == 0.0


POLITE = {"weight": 1, "verifier": {"kind": "regex", "pattern": r"^(?!.*\bno\b)"}}
TO_THE_POINT = {"weight": 3, "verifier": {"kind": "regex", "pattern": ADDS_TWO}}


@pytest.mark.parametrize(
    ("problem", "share"),
    [
        (text_problem("Tell me.", kind="weighted", of=[POLITE, TO_THE_POINT]), 0.25),  # silence is polite
        (NUMBER, 0.0),
        (BOTH.model_copy(update={"reference": "def f(n):\n    return n + 2\n"}), 0.0),
        (TESTED, 0.0),
        (TESTED.model_copy(update={"reference": None}), 0.0),
    ],
)
def test_partial_credit_is_for_what_is_better_than_an_empty_answer(problem: Problem, share: float) -> None:
    with judging.open_bench(VERIFY, [problem]) as bench:
        [ready] = prepare([problem], bench)
        paid = [judging.judge_answer(bench, Answer.of(text), ready, "a", 1.0)[1].reward for text in ("", "no")]
    assert ready.trivial_share == share
    assert paid == [0.0, 0.0]


def test_what_is_judged_by_code_and_words_is_tried_with_code_that_does_nothing() -> None:
    either = {"kind": "any", "of": [{"kind": "cases"}, {"kind": "regex", "pattern": "return"}]}
    content = {"verifier": either, "reference": tiny.answer(2), "prompt": "p", "entry_point": "f"}
    problem = Problem.model_validate(content | {"cases": [{"input": [1], "expected": 3}]})
    for reference, share in ((tiny.answer(2), 1.0), ("no code, (", 0.0), ("1 + 1", 0.0), (None, 0.0)):
        with judging.open_bench(VERIFY, [problem]) as bench:
            [ready] = prepare([problem.model_copy(update={"reference": reference})], bench)
        assert ready.trivial_share == share
