"""`rlm compare`: two reports on the same exam, side by side."""

import json
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from rlm_cli.exam import policy_of
from rlm_cli.terminal import plain_console
from rlm_core.comparison import ExamPair, compare, disagreement
from rlm_core.errors import UsageError
from rlm_core.exams.scores import CONFIDENCE
from rlm_core.files import first_reason, read_given_text
from rlm_core.pages.gate_page import SHOWN_OF_ID
from rlm_core.phrases import number_of, p_text
from rlm_core.records import ExamReport, Record, SuiteComparison
from rlm_core.seeds import derive_seed

_console = plain_console()


def compare_reports(first: Path, second: Path, as_json: bool) -> None:
    """Print how the second policy did against the first, problem by problem.

    Raises:
        UsageError: a file is no report, the reports are not on the same exam, or one is not complete.
    """
    a, b = _report(first), _report(second)
    _check(first, second, a, b)
    comparison = compare(ExamPair(a, b), derive_seed(a.seed, "compare"), CONFIDENCE)
    better, worse = _flips(a, b)
    if as_json:
        flips = {name: [flip.model_dump() for flip in on] for name, on in (("better_on", better), ("worse_on", worse))}
        both = {"a": str(first), "b": str(second), "confidence": CONFIDENCE}
        print(json.dumps(both | comparison.model_dump(mode="json") | flips))
    else:
        _print(comparison, a, b, better, worse)


def _report(path: Path) -> ExamReport:
    try:
        return ExamReport.model_validate_json(read_given_text(path, str(path), UsageError))
    except ValidationError as error:
        raise UsageError(f"{path} is not a readable ExamReport: {first_reason(error)}") from error


def _check(first: Path, second: Path, a: ExamReport, b: ExamReport) -> None:
    if why := disagreement(a, b):
        raise UsageError(f"{first} and {second} are not on the same exam: {why}")
    for path, report in ((first, a), (second, b)):
        if not report.complete:
            raise UsageError(f"{path}: not all of its answers could be judged; sit the exam again")


class _Flip(Record):
    """A problem that the two answered differently well."""

    problem_id: str
    entry_point: str
    a: int
    b: int
    """Right answers."""


def _flips(a: ExamReport, b: ExamReport) -> tuple[list[_Flip], list[_Flip]]:
    """The problems on which the second did better, and worse, in the suite's order."""
    before = {problem.problem_id: problem.correct for problem in a.problems}
    both = [
        _Flip(problem_id=each.problem_id, entry_point=each.entry_point, a=before[each.problem_id], b=each.correct)
        for each in b.problems
    ]
    return [flip for flip in both if flip.b > flip.a], [flip for flip in both if flip.b < flip.a]


def _print(comparison: SuiteComparison, a: ExamReport, b: ExamReport, better: list[_Flip], worse: list[_Flip]) -> None:
    low, high = comparison.interval
    table = Table.grid(padding=(0, 2))
    table.add_row("suite", f"{a.suite}, {number_of(len(a.problems), 'problem')}, {number_of(a.k, 'answer')} each")
    for name, report in (("A", a), ("B", b)):
        table.add_row(name, policy_of(report))
    for k in sorted(a.pass_at.keys() & b.pass_at.keys()):
        table.add_row(f"pass@{k}", f"{a.pass_at[k]:.3f} → {b.pass_at[k]:.3f}")
    table.add_row(
        "difference",
        f"{comparison.difference:+.3f} at pass@1 ({CONFIDENCE:.0%} interval {low:+.3f} to {high:+.3f}), "
        f"p {p_text(comparison.p_value, '= ')} that so large a gain is chance"
        + (f", {p_text(comparison.p_worse)} that so large a loss is" if comparison.p_worse is not None else ""),
    )
    table.add_row("better", f"on {number_of(comparison.better, 'problem')}{_listed(better)}")
    table.add_row("worse", f"on {number_of(comparison.worse, 'problem')}{_listed(worse)}")
    if a.code != b.code:
        table.add_row("mind", "the reports were made by different versions of the code")
    _console.print(table)


def _listed(flips: list[_Flip]) -> str:
    names = (f"{flip.entry_point} ({flip.problem_id[:SHOWN_OF_ID]})" for flip in flips)
    return f": {', '.join(names)}" if flips else ""
