"""Iterations that have ended, as pages, reports and trackers show them."""

from rlm_core.files import write_json, write_jsonl, write_record
from rlm_core.problems import Problem
from rlm_core.records import CaseResult, GateDecision, Outcome, Rollout, SuiteComparison, Verdict
from rlm_core.state.ledger import FinishedIteration
from rlm_core.state.project import Project
from rlm_core.summary import Latency, Summary
from rlm_core.training.trainer import StepMetrics

PASSED, TIMEOUT, CRASHED = (CaseResult(outcome=outcome) for outcome in ("passed", "timeout", "crashed"))
STAGES = {"generate": 1.0, "filter": 1.0, "rollout": 4.0, "verify": 2.0, "train": 8.0, "evaluate": 4.0}


def compared(incumbent: float, candidate: float, suite: str = "s") -> SuiteComparison:
    return SuiteComparison(
        suite="bank:benchmark",
        suite_digest=suite,
        incumbent=incumbent,
        candidate=candidate,
        difference=candidate - incumbent,
        interval=(candidate - incumbent - 0.05, candidate - incumbent + 0.05),
        p_value=0.04,
        better=3,
        worse=1,
    )


def decision(number: int, outcome: Outcome, incumbent: float, candidate: float, suite: str = "s") -> GateDecision:
    return GateDecision(
        iteration=number,
        outcome=outcome,
        rule="paired",
        reason="it came out so",
        benchmark=compared(incumbent, candidate, suite),
        holdout=compared(0.2, 0.21),
        candidate=None,
        incumbent=None,
        learner=None,
    )


def summary(number: int) -> Summary:
    return Summary(
        iteration=number,
        policy="base",
        problems_by_source={"file": 2},
        rejections_by_rule={"min_cases": 1},
        rollouts=8,
        passed=3,
        infrastructure_faults=0,
        pass_rate=0.375,
        reward_mean=0.4,
        rollout_tokens=800,
        rollout_tokens_per_s=200.0,
        truncated_share=0.25,
        sandbox="bubblewrap",
        verify_latency=Latency(mean=0.007, p50=0.007, p90=0.01, p99=0.02, max=0.03),
        trained_steps=5,
        trained_tokens=900,
        useful_groups=2,
        train_s=7.5,
        duration_s=90.0,
        stage_seconds=STAGES,
    )


def entry(number: int, outcome: Outcome, incumbent: float, candidate: float, suite: str = "s") -> FinishedIteration:
    return FinishedIteration(
        number=number,
        ended=f"2026-01-0{number}T02:00:00+00:00",
        decision=decision(number, outcome, incumbent, candidate, suite),
        summary=summary(number).model_dump(mode="json"),
    )


def answer(problem: Problem, index: int, text: str, reward: float, **found: object) -> tuple[Rollout, Verdict]:
    rollout = Rollout(
        problem_id=problem.id,
        index=index,
        seed=index,
        prompt_tokens=(1,),
        tokens=(2, index),
        logprobs=(0.0, 0.0),
        text=text,
        finish_reason="stop",
    )
    status = "passed" if reward == 1 else "failed"
    verdict = {"rollout_id": rollout.id, "problem_id": problem.id, "status": status, "sandbox": "bubblewrap"}
    return rollout, Verdict.model_validate(verdict | {"reward": reward} | found)


LOSSES = [0.5, 0.25]


def write_run(project: Project, number: int) -> None:
    """The files of an iteration that was accepted, with an optimizer step for each of `LOSSES`."""
    run = project.run(number)
    write_json(run / "config.json", {"seed": 7, "train": {"method": "grpo"}})
    write_record(run / "decision.json", decision(number, "accepted", 0.2, 0.4))
    write_record(run / "summary.json", summary(number))
    zeros = {name: 0.0 if field.annotation is float else 0 for name, field in StepMetrics.model_fields.items()}
    steps = [
        StepMetrics.model_validate(zeros | {"step": step, "loss": loss, "applied": True})
        for step, loss in enumerate(LOSSES, 1)
    ]
    write_jsonl(run / "metrics.jsonl", steps)
