"""Reports of exams that nobody sat, for the tests of what is decided on them."""

from collections.abc import Sequence
from typing import Any

from rlm_core.comparison import ExamPair
from rlm_core.records import ExamReport, ProblemScore


def report(correct: Sequence[int], k: int = 4, **changes: Any) -> ExamReport:
    """A complete report with so many right answers of `k` on each problem."""
    scores = [
        ProblemScore(problem_id=f"p{i}", entry_point=f"f{i}", samples=k, correct=count)
        for i, count in enumerate(correct)
    ]
    fields: dict[str, Any] = {
        "suite": "suite",
        "suite_digest": "digest",
        "policy": "base",
        "base_model": "m",
        "k": k,
        "temperature": 0.7,
        "seed": 0,
        "pass_at": {},
        "problems": tuple(scores),
        "tokens": 1,
        "truncated_share": 0.0,
        "infrastructure_faults": 0,
        "duration_s": 1.0,
    }
    return ExamReport(**(fields | changes))


def pair(incumbent: Sequence[int], candidate: Sequence[int], k: int = 4) -> ExamPair:
    return ExamPair(report(incumbent, k), report(candidate, k))
