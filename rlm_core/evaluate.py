"""The evaluate stage: one policy on one suite, in an iteration or by itself. The exams themselves are in exams/."""

import re
from pathlib import Path

from rlm_core.exams.key import exam_key
from rlm_core.exams.order import Order
from rlm_core.exams.parts import KeptParts
from rlm_core.exams.sit import require_complete, sit_exam
from rlm_core.files import write_jsonl, write_record
from rlm_core.records import FileRef, StageResult
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project


def run(order: Order) -> StageResult:
    """Have an exam sat: a report in `exams/` of the order's directory, and the answers and verdicts that it rests on.

    An earlier report of the very same exam is taken from the ledger instead of sitting it again.

    Raises:
        InfrastructureFault: some answers could not be judged; the exam does not count.
    """
    exam = order.exam()
    key = exam_key(order.examined, exam)
    stem = Path(order.directory, "exams", f"{order.who}-{_slug(order.suite)}-{key}")
    kept = KeptParts(stem)
    with open_ledger(Project(Path(order.project)).ledger) as ledger:
        report = ledger.exam(key)
        reused = report is not None
        if report is None:
            sat = sit_exam(exam, order.examined, kept)
            report = sat.report
            write_jsonl(Path(f"{stem}.answers.jsonl"), sat.answers)
            write_jsonl(Path(f"{stem}.verdicts.jsonl"), sat.verdicts)
            require_complete(report)
            ledger.save_exam(key, report)
    kept.remove()  # those, too, of one who was killed when somebody else had sat the exam
    path = write_record(Path(f"{stem}.json"), report)
    pass_at = report.model_dump(mode="json")["pass_at"]
    figures = {"who": order.who, "suite": order.suite, "reused": reused, "pass_at": pass_at}
    return StageResult(files={"report": FileRef.of(path)}, figures=figures)


def _slug(suite: str) -> str:
    """What a person knows a suite by, as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", suite.rpartition("/")[2]).strip("-")[:40]
