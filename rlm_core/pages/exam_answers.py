"""What was answered in an exam, as long as the run that sat it still has its files."""

import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rlm_core.errors import StageFailed
from rlm_core.files import read_jsonl
from rlm_core.records import ExamReport, Rollout, Verdict
from rlm_core.state.project import Project
from rlm_core.state.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GivenAnswer:
    """One answer and whether it passed."""

    text: str
    passed: bool


Answers = dict[str, list[GivenAnswer]]
"""Of each problem, by its id."""


def answers_behind(project: Project, report: ExamReport) -> Answers:
    """The answers that a report rests on; none when their files are gone.

    A report that was taken from the ledger has its answers in an earlier iteration's directory, or beside those of
    the exams that somebody ordered.
    """
    places = [*(run.exams for run in reversed(project.all_runs())), Run(project.root).exams]
    for path in (path for place in places for path in sorted(place.glob("*.answers.jsonl"), reverse=True)):
        kept = path.with_name(path.name.replace(".answers.jsonl", ".json"))
        if _is(kept, report):
            return _read(path, path.with_name(path.name.replace(".answers.", ".verdicts.")))
    return {}


def _is(path: Path, report: ExamReport) -> bool:
    try:
        content = path.read_bytes()
        return report.policy.encode() in content and ExamReport.model_validate_json(content) == report
    except (OSError, ValidationError):
        return False


def _read(answers: Path, verdicts: Path) -> Answers:
    found: Answers = defaultdict(list)
    try:
        passed = {verdict.rollout_id: verdict.passed for verdict in read_jsonl(verdicts, Verdict)}
        for rollout in read_jsonl(answers, Rollout):
            found[rollout.problem_id].append(GivenAnswer(rollout.text, passed[rollout.id]))
    except (StageFailed, KeyError) as error:
        _log.warning("the gate's page shows no answers: %s", _reason(error, answers))
        return {}
    return dict(found)


def _reason(error: StageFailed | KeyError, answers: Path) -> str:
    return f"{answers} has one without a verdict" if isinstance(error, KeyError) else str(error)
