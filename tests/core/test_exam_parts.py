"""An exam in parts: what was sat before a stop is not sat again, and the report is the same."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlm_core import evaluate, progress
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.config_file import load_config
from rlm_core.errors import InfrastructureFault, Interrupted, StageFailed
from rlm_core.exams import sit
from rlm_core.exams.exam import Exam
from rlm_core.exams.order import Order, order_exam
from rlm_core.exams.parts import parts_of
from rlm_core.files import read_record, sealed, unsealed, write_sealed
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
    stop_after(order, 2, monkeypatch)
    assert gone_on_with(order, monkeypatch) == (straight, [2])
    assert parts_in(order) == []


def gone_on_with(order: Order, monkeypatch: pytest.MonkeyPatch) -> tuple[ExamReport, list[int]]:
    """The report, and how many problems each part had that was still to be sampled."""
    rest = Sampler()
    monkeypatch.setattr(sit, "sample_rollouts", rest)
    return report_of(order), rest.asked


def stop_after(order: Order, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sit so many parts of the exam."""
    with monkeypatch.context() as patch:
        patch.setattr(sit, "sample_rollouts", Sampler(stop_at=parts + 1))
        with pytest.raises(Interrupted):
            evaluate.run(order)
    assert len(parts_in(order)) == parts


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-9],
        lambda content: content.replace(b"passed", b"failed"),
        lambda content: sealed(unsealed(content).replace(b'"sampling_s"', b'"sampled_s"')),
    ],
    ids=["cut", "altered", "of another version"],
)
def test_a_part_that_is_not_as_it_was_written_is_sat_again(
    order: Order, straight: ExamReport, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(order, 2, monkeypatch)
    first = parts_in(order)[0]
    damaged = damage(first.read_bytes())
    assert damaged != first.read_bytes()
    first.write_bytes(damaged)
    assert gone_on_with(order, monkeypatch) == (straight, [4, 2])


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
    assert gone_on_with(order, monkeypatch) == (straight, [4])


def test_parts_of_the_same_suite_in_another_order_are_not_mixed_up(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(order, 2, monkeypatch)
    tiny.write_problems(Path(order.suite), [*reversed(PROBLEMS)])
    report = report_of(order)
    assert {score.problem_id for score in report.problems} == {problem.id for problem in PROBLEMS}
    assert all(score.samples == 16 for score in report.problems)
    assert report.suite_digest == straight.suite_digest
    assert parts_in(order) == []


def test_a_time_limit_in_the_middle_costs_one_part(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: Any, **named: Any) -> list[Rollout]:
        with progress.time_limit(-1 if named["part"].endswith(" 1") else 600):
            return sample_rollouts(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(sit, "sample_rollouts", late)
        with pytest.raises(InfrastructureFault, match="took longer than"):
            evaluate.run(order)
    assert gone_on_with(order, monkeypatch) == (straight, [4, 2])


def test_two_who_sit_the_same_exam_come_to_the_same_report_and_leave_no_part(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sits the whole exam while the first has one part of it."""
    others: list[ExamReport] = []
    judge = judge_rollouts

    def judge_and_let_the_other_sit(rollouts: Sequence[Rollout], *given: Any, **named: Any) -> Any:
        if named["part"].endswith(" 1"):
            monkeypatch.setattr(sit, "judge_rollouts", judge)
            others.append(report_of(order))
        return judge(rollouts, *given, **named)

    monkeypatch.setattr(sit, "judge_rollouts", judge_and_let_the_other_sit)
    assert [report_of(order), *others] == [straight, straight]
    assert parts_in(order) == []


def test_parts_of_one_who_was_killed_go_when_the_report_is_there(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(order, 2, monkeypatch)
    left = {path: path.read_bytes() for path in parts_in(order)}
    assert report_of(order) == straight
    for path, content in left.items():
        path.write_bytes(content)
    assert evaluate.run(order).figures["reused"]
    assert parts_in(order) == []


def test_a_part_that_cannot_be_written_is_one_clear_error_and_what_was_sat_before_stays(
    order: Order, straight: ExamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def full(path: Path, record: Any) -> Path:
        written.append(path)
        if len(written) == 2:
            monkeypatch.setattr("os.fsync", fail)
        return write_sealed(path, record)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("rlm_core.exams.parts.write_sealed", full)
        with pytest.raises(StageFailed, match=r"cannot write .*/exams/base-.*\.001\.part: No space left on device"):
            evaluate.run(order)
    monkeypatch.undo()
    assert [path.name for path in Path(order.directory, "exams").iterdir() if path.suffix == ".part"] == [
        written[0].name
    ]
    assert report_of(order) == straight
