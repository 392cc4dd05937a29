"""What a ledger is given, and all that it tells."""

from typing import Any

from rlm_core.problems import Problem
from rlm_core.records import (
    AdapterRef,
    ExamReport,
    GateDecision,
    Outcome,
    ProblemScore,
    SuiteComparison,
)
from rlm_core.state.ledger import Base, Ledger, ProblemOutcome
from tests.samples import exam_reports

BASE = Base(name="model", fingerprint="f")
FIRST = AdapterRef(path="start", sha256="0" * 64)


def adapter(iteration: int) -> AdapterRef:
    return AdapterRef(path=f"runs/{iteration:04d}/adapter", sha256=str(iteration) * 64)


def decision(
    iteration: int,
    accepted: bool,
    score: float = 0.5,
    incumbent: AdapterRef | None = None,
    learnt: bool = True,
    suite: str = "d",
    outcome: Outcome | None = None,
    learner: AdapterRef | None = None,
) -> GateDecision:
    result = SuiteComparison(
        suite="s",
        suite_digest=suite,
        incumbent=0.25,
        candidate=score,
        difference=score - 0.25,
        interval=(0, 1),
        p_value=0.5,
        better=1,
        worse=0,
    )
    return GateDecision(
        iteration=iteration,
        outcome=outcome or ("accepted" if accepted else "rejected"),
        rule="paired",
        reason="because",
        benchmark=result if learnt else None,
        holdout=result if learnt else None,
        candidate=adapter(iteration) if learnt else None,
        incumbent=incumbent,
        learner=learner or incumbent,
    )


def on_probation(iteration: int, learner: AdapterRef | None = None) -> GateDecision:
    return decision(iteration, accepted=False, outcome="probation", learner=learner)


def outcome(name: str, rollouts: int = 8, passed: int = 2) -> ProblemOutcome:
    problem = Problem.model_validate({"prompt": "p", "entry_point": name, "cases": [{"input": [1], "expected": 2}]})
    right = {"passed_rollout_id": f"rollout-{name}", "passed_text": "def …"} if passed else {}
    return ProblemOutcome(problem=problem, rollouts=rollouts, passed=passed, **right)


def report(k: int = 4, samples: int = 4) -> ExamReport:
    score = ProblemScore(problem_id="p", entry_point="f", samples=samples, correct=1)
    own = {"pass_at": {1: 0.25, 4: 1.0}, "tokens": 9, "truncated_share": 0.5, "duration_s": 1.5}
    return exam_reports.report([], k, suite="s", suite_digest="d", problems=(score,), **own)


def state_of(ledger: Ledger) -> list[Any]:
    """All that the ledger tells."""
    readings = [
        ledger.next_iteration(),
        ledger.incumbent(),
        ledger.base(),
        ledger.past_scores(),
        ledger.history(),
        ledger.tried_problems(before=99),
        ledger.corpus_size(),
        ledger.lineage(),
        ledger.moves(),
    ]
    tables = ("state", "iterations", "adapters", "pointers", "exams", "problems", "corpus")
    return [*readings, *(ledger._connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables)]
