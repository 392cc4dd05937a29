"""Judging answers in the real sandbox, and what they are paid."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core import judging, progress
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault
from rlm_core.judging import judge_rollout, judge_rollouts, reward
from rlm_core.problems import Problem
from rlm_core.records import Usage
from rlm_core.sandbox import Limits, Sandbox, open_sandbox
from rlm_core.verifiers import Answer, Bench, Judgement, judge
from tests.samples.square import RIGHT, SQUARE, THREE_OF_FOUR, answer

ARGUMENT = "def square(n):\n    return n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def judgement(passed: int, of: int) -> Judgement:
    status: Any = "passed" if of and passed == of else "failed"
    return Judgement(status=status, score=passed / of if of else 0.0)


@pytest.mark.parametrize(
    ("passed", "of", "trivial", "credit", "expected"),
    [
        (4, 4, 0.5, 0.5, 1.0),
        (4, 4, 1.0, 0.0, 1.0),
        (3, 4, 0.5, 0.5, 0.25),  # 0.5 * (0.75 - 0.5) / (1 - 0.5)
        (3, 4, 0.0, 0.5, 0.375),  # 0.5 * 0.75
        (3, 4, 0.25, 1.0, 2 / 3),  # (0.75 - 0.25) / 0.75
        (2, 4, 0.5, 0.5, 0.0),
        (1, 4, 0.5, 0.5, 0.0),
        (0, 4, 0.0, 0.5, 0.0),
        (3, 4, 0.5, 0.0, 0.0),
        (3, 4, 1.0, 0.5, 0.0),
        (0, 0, 0.25, 0.5, 0.0),
    ],
)
def test_the_reward_is_as_computed_by_hand(
    passed: int, of: int, trivial: float, credit: float, expected: float
) -> None:
    assert reward(judgement(passed, of), trivial, credit) == pytest.approx(expected, abs=1e-15)


@given(of=st.integers(1, 20), missing=st.integers(1, 20), trivial=st.floats(0, 1), credit=st.floats(0, 1))
def test_an_incomplete_answer_is_paid_at_most_the_partial_credit(
    of: int, missing: int, trivial: float, credit: float
) -> None:
    passed = max(0, of - missing)
    paid = reward(judgement(passed, of), trivial, credit)
    assert 0.0 <= paid <= credit
    if passed / of <= trivial:
        assert paid == 0.0


@given(of=st.integers(2, 20), trivial=st.floats(0, 0.99), credit=st.floats(0, 1))
def test_one_more_passed_case_is_never_paid_less(of: int, trivial: float, credit: float) -> None:
    paid = [reward(judgement(passed, of), trivial, credit) for passed in range(of)]
    assert paid == sorted(paid)


@pytest.mark.parametrize(
    ("text", "status", "reason", "paid"),
    [
        (RIGHT, "passed", "", 1.0),
        (THREE_OF_FOUR, "failed", "1 of 4 cases failed", 0.25),
        (ARGUMENT, "failed", "2 of 4 cases failed", 0.0),
        ("def square(n) return n", "failed", "does not load: SyntaxError", 0.0),
        ("def cube(n):\n    return n", "failed", "no function named square", 0.0),
    ],
)
def test_an_answer_is_judged_by_its_cases(sandbox: Sandbox, text: str, status: str, reason: str, paid: float) -> None:
    rollout = answer(text)
    judged = judge_rollout(Bench(sandbox), rollout, SQUARE, partial_credit=0.5)
    assert (judged.status, judged.reward) == (status, paid)
    assert judged.reason.startswith(reason)
    assert (judged.rollout_id, judged.problem_id, judged.sandbox) == (rollout.id, SQUARE.id, sandbox.name)
    assert len(judged.cases) == 4
    assert judged.latency_s > 0


def test_an_answer_without_code_fails_and_nothing_is_run(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sandbox, "run", lambda *_: pytest.fail("something was run"))
    judged = judge_rollout(Bench(sandbox), answer("I do not know."), SQUARE, partial_credit=0.5)
    assert (judged.status, judged.reason, judged.sandbox) == ("failed", "no code in the answer", "none")
    assert {case.outcome for case in judged.cases} == {"not_run"}
    assert judged.reward == 0.0


def test_a_fault_of_the_machinery_is_neither_right_nor_wrong(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InfrastructureFault("the sandbox died")

    monkeypatch.setattr(judging, "judge", broken)
    judged = judge_rollout(Bench(sandbox), answer(RIGHT), SQUARE, partial_credit=0.5)
    assert (judged.status, judged.reason, judged.sandbox) == ("infrastructure", "the sandbox died", sandbox.name)
    assert not judged.passed
    assert judged.reward == 0.0


def test_verdicts_come_in_the_order_of_the_rollouts_whatever_the_number_of_sandboxes() -> None:
    texts = [RIGHT, THREE_OF_FOUR, "no", ARGUMENT] * 8
    rollouts = [answer(text, index) for index, text in enumerate(texts)]
    judged = [
        judge_rollouts(rollouts, {SQUARE.id: SQUARE}, VerifySection(workers=workers, partial_credit=0.5))
        for workers in (1, 2)
    ]
    for verdicts in judged:
        assert [verdict.rollout_id for verdict in verdicts] == [rollout.id for rollout in rollouts]
        assert [verdict.reward for verdict in verdicts] == [1.0, 0.25, 0.0, 0.0] * 8


def test_one_fault_does_not_stop_the_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = judge

    def broken_for_one(answer: Answer, problem: Problem, bench: Bench) -> Any:
        if "if n < 3" in answer.text:
            raise InfrastructureFault("the sandbox died")
        return real(answer, problem, bench)

    monkeypatch.setattr(judging, "judge", broken_for_one)
    monkeypatch.setattr(judging, "_PAUSES_S", (0.0, 0.0))
    rollouts = [answer(text, index) for index, text in enumerate([RIGHT, THREE_OF_FOUR, RIGHT])]
    judged = judge_rollouts(rollouts, {SQUARE.id: SQUARE}, VerifySection())
    assert [verdict.status for verdict in judged] == ["passed", "infrastructure", "passed"]


def test_what_the_machinery_lost_is_judged_again_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, asked = judge, list[str]()

    def broken_at_first(answer: Answer, problem: Problem, bench: Bench) -> Any:
        asked.append(answer.text)
        if answer.text == THREE_OF_FOUR and asked.count(answer.text) < 3:
            raise InfrastructureFault("the sandbox died")
        return real(answer, problem, bench)

    monkeypatch.setattr(judging, "judge", broken_at_first)
    monkeypatch.setattr(judging, "_PAUSES_S", (0.0, 0.0))
    rollouts = [answer(text, index) for index, text in enumerate([RIGHT, THREE_OF_FOUR, ARGUMENT])]
    judged = judge_rollouts(rollouts, {SQUARE.id: SQUARE}, VerifySection())
    assert [verdict.status for verdict in judged] == ["passed", "failed", "failed"]
    assert (asked.count(RIGHT), asked.count(THREE_OF_FOUR), asked.count(ARGUMENT)) == (1, 3, 1)
    line = "verify: 1 answers that the machinery lost are judged again: the sandbox died"
    assert [record.getMessage() for record in caplog.records] == [line, line]


def test_a_broken_machinery_is_not_asked_for_each_lost_answer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def broken(answer: Answer, *_: object) -> None:
        asked.append(answer.text)
        raise InfrastructureFault("no more processes")

    monkeypatch.setattr(judging, "judge", broken)
    monkeypatch.setattr(judging, "_PAUSES_S", (0.0, 0.0))
    judged = judge_rollouts([answer(RIGHT, index) for index in range(5)], {SQUARE.id: SQUARE}, VerifySection())
    assert {verdict.status for verdict in judged} == {"infrastructure"}
    assert len(asked) == 5 + 2


def test_progress_tells_how_many_were_judged_and_passed() -> None:
    seen: list[progress.Progress] = []
    rollouts = [answer(text, index) for index, text in enumerate([RIGHT, "no", RIGHT])]
    with progress.listening(seen.append):
        judge_rollouts(rollouts, {SQUARE.id: SQUARE}, VerifySection(), part="000")
    assert [(p.stage, p.part, p.done, p.total, p.figures["passed"]) for p in seen] == [
        ("verify", "000", 1, 3, 1),
        ("verify", "000", 2, 3, 1),
        ("verify", "000", 3, 3, 2),
    ]


def test_what_was_late_by_the_clock_is_judged_again_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine too busy to give an answer its CPU time does not make it wrong; one that sleeps stays wrong."""
    real, seen = judge, list[str]()

    def late_at_first(answer: Answer, problem: Problem, bench: Bench) -> Judgement:
        seen.append(answer.text)
        if seen.count(answer.text) > 1 or answer.text == THREE_OF_FOUR:
            return real(answer, problem, bench)
        return Judgement(status="failed", reason="late", score=0.0, usage=Usage(ran_out_of_clock=True))

    monkeypatch.setattr(judging, "judge", late_at_first)
    rollouts = [answer(text, index) for index, text in enumerate([RIGHT, THREE_OF_FOUR, ARGUMENT])]
    judged = judge_rollouts(rollouts, {SQUARE.id: SQUARE}, VerifySection())
    assert [verdict.status for verdict in judged] == ["passed", "failed", "failed"]
    assert seen == [RIGHT, THREE_OF_FOUR, ARGUMENT, RIGHT, ARGUMENT]
    assert caplog.messages == ["verify: 2 answers that were late by the clock alone are judged again, one by one"]


def test_an_answer_that_sleeps_is_told_from_one_that_works() -> None:
    limits = Limits(case_s=0.1, patience=15, respawns=0)
    sleeps = "```python\nimport time\ndef square(n):\n    time.sleep(9)\n```"
    works = "```python\ndef square(n):\n    while True: pass\n```"
    with open_sandbox(limits=limits) as sandbox:
        by_clock = [
            judge_rollout(Bench(sandbox), answer(text), SQUARE, 0.0).usage.ran_out_of_clock for text in (sleeps, works)
        ]
    assert by_clock == [True, False]
