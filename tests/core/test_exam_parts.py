"""An exam in parts: what was sat before a stop is not sat again, and the report is the same."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlm_core import evaluate
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.config_file import load_config
from rlm_core.errors import InfrastructureFault, Interrupted
from rlm_core.exams import sit
from rlm_core.exams.exam import Exam
from rlm_core.exams.order import Order, order_exam
from rlm_core.exams.parts import parts_of
from rlm_core.files import read_record
from rlm_core.judging import judge_rollouts
from rlm_core.problems import Problem
from rlm_core.records import ExamReport, Rollout
from rlm_core.rollout import sample_rollouts
from rlm_core.sources.suite import Asking, Suite
from tests import tiny
from tests.conftest import MakeConfig

PROBLEMS = tuple(tiny.problem(2, i) for i in range(10))


def exam(samples: int, askings: dict[str, Asking] | None = None) -> Exam:
    suite = Suite(PROBLEMS, askings or {})
    return Exam("suite", suite, EvaluateSection(samples=samples), RolloutSection(), VerifySection(), 7)


@pytest.mark.parametrize(("samples", "sizes"), [(1, [10]), (16, [4, 4, 2]), (30, [2] * 5), (100, [1] * 10)])
def test_a_part_has_whole_problems_and_64_answers_at_most_unless_one_problem_has_more(
    samples: int, sizes: list[int]
) -> None:
    parts = parts_of(exam(samples))
    assert [len(part.problems) for part in parts] == sizes
    assert [part.answers for part in parts] == [size * samples for size in sizes]
    assert [problem for part in parts for problem in part.problems] == list(PROBLEMS)


def test_problems_of_a_part_are_asked_alike() -> None:
    warmer = {problem.id: Asking(temperature=0.9) for problem in PROBLEMS[::2]}
    parts = parts_of(exam(1, warmer))
    assert [part.problems for part in parts] == [PROBLEMS[::2], PROBLEMS[1::2]]
    assert [part.section.temperature for part in parts] == [0.9, 0.7]
    assert [part.number for part in parts] == [0, 1]


@pytest.fixture
def order(make_config: MakeConfig, tmp_path: Path) -> Order:
    """Of an exam in three parts."""
    return order_exam(
        load_config(make_config()), "base", tiny.write_problems(tmp_path / "suite.jsonl", [*PROBLEMS]), samples=16
    )


def report_of(order: Order) -> ExamReport:
    """Sit the exam in a project that knows of no exam."""
    report = read_record(Path(evaluate.run(order).files["report"].path), ExamReport)
    return report.model_copy(update={"duration_s": 0.0, "sampling_s": 0.0})


class Sampler:
    """Samples, notes how many problems it was asked, and stops when it was asked so many times."""

    def __init__(self, stop_at: int = 0):
        self.asked: list[int] = []
        self._stop_at = stop_at
        self._sample = sample_rollouts

    def __call__(self, policy: Any, problems: Sequence[Problem], *given: Any, **named: Any) -> list[Rollout]:
        self.asked.append(len(problems))
        if len(self.asked) == self._stop_at:
            raise Interrupted("stopped")
        return self._sample(policy, problems, *given, **named)


def forget(order: Order) -> None:
    for file in Path(order.project).glob("ledger*"):
        file.unlink()


def parts_in(order: Order) -> list[Path]:
    return sorted(Path(order.directory).glob("exams/*.part"))


@pytest.fixture
def straight(order: Order) -> ExamReport:
    """The report of an exam that nothing stopped."""
    report = report_of(order)
    assert parts_in(order) == []
    forget(order)
    return report


def test_an_exam_that_was_stopped_goes_on_after_its_last_whole_part(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sit, "sample_rollouts", Sampler(stop_at=3))
        with pytest.raises(Interrupted):
            evaluate.run(order)
    assert len(parts_in(order)) == 2
    rest = Sampler()
    monkeypatch.setattr(sit, "sample_rollouts", rest)
    assert report_of(order) == straight
    assert rest.asked == [2]
    assert parts_in(order) == []


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-9], lambda content: content.replace(b"passed", b"failed")]
)
def test_a_part_that_is_not_as_it_was_written_is_sat_again(
    order: Order, straight: ExamReport, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sit, "sample_rollouts", Sampler(stop_at=3))
        with pytest.raises(Interrupted):
            evaluate.run(order)
    first = parts_in(order)[0]
    damaged = damage(first.read_bytes())
    assert damaged != first.read_bytes()
    first.write_bytes(damaged)
    rest = Sampler()
    monkeypatch.setattr(sit, "sample_rollouts", rest)
    assert report_of(order) == straight
    assert rest.asked == [4, 2]


def test_only_the_part_is_sat_again_that_could_not_be_judged(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = judge_rollouts

    def lose_one(rollouts: Sequence[Rollout], *given: Any, **named: Any) -> Any:
        verdicts = judge(rollouts, *given, **named)
        if named["part"].endswith(" 1"):
            verdicts[5] = verdicts[5].model_copy(update={"status": "infrastructure"})
        return verdicts

    with monkeypatch.context() as patch:
        patch.setattr(sit, "judge_rollouts", lose_one)
        with pytest.raises(InfrastructureFault, match=r"1 answers on .* could not be judged"):
            evaluate.run(order)
    rest = Sampler()
    monkeypatch.setattr(sit, "sample_rollouts", rest)
    assert report_of(order) == straight
    assert rest.asked == [4]
