"""The evaluate stage: one policy on one suite, in an iteration or by itself. The exams themselves are in exams/."""

import re
from pathlib import Path

from rlm_core.config import Config, EvaluateSection, RolloutSection, VerifySection
from rlm_core.exams.key import exam_key
from rlm_core.exams.order import Order
from rlm_core.exams.sit import Exam, require_complete, sit_exam
from rlm_core.files import write_jsonl, write_record
from rlm_core.records import Examinee, FileRef, StageResult
from rlm_core.sources import read_suite
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project


def run(
    directory: Path,
    project: Path,
    who: str,
    examined: Examinee,
    suite: str,
    evaluate: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
    seed: int,
) -> StageResult:
    """Examine a policy on a suite: a report in `directory/exams/`, and the answers and verdicts that it rests on.

    An earlier report of the very same exam is taken from the ledger instead of sitting it again.

    Args:
        who: `base`, `incumbent`, `candidate` …; part of the file's name.

    Raises:
        InfrastructureFault: some answers could not be judged; the exam does not count.
    """
    exam = Exam(suite, read_suite(suite), evaluate, rollout, verify, seed)
    key = exam_key(examined, exam.suite.digest, seed, evaluate, rollout, verify)
    stem = directory / "exams" / f"{who}-{_slug(suite)}-{key}"
    with open_ledger(Project(project).ledger) as ledger:
        report = ledger.exam(key)
        reused = report is not None
        if report is None:
            sat = sit_exam(exam, examined)
            report = sat.report
            write_jsonl(Path(f"{stem}.answers.jsonl"), sat.answers)
            write_jsonl(Path(f"{stem}.verdicts.jsonl"), sat.verdicts)
            require_complete(report)
            ledger.save_exam(key, report)
    path = write_record(Path(f"{stem}.json"), report)
    figures = {"who": who, "suite": suite, "reused": reused, "pass_at": report.model_dump(mode="json")["pass_at"]}
    return StageResult(files={"report": FileRef.of(path)}, figures=figures)


def run_order(order: Order, config: Config) -> StageResult:
    """Have an exam sat that somebody ordered; as `run`."""
    return run(
        order.directory,
        order.project,
        order.who,
        order.examined,
        order.suite,
        order.evaluate,
        config.rollout,
        config.verify,
        order.seed,
    )


def _slug(suite: str) -> str:
    """What a person knows a suite by, as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", suite.rpartition("/")[2]).strip("-")[:40]
