"""What an iteration leaves for the ledger, and its figures: in all, and of each problem."""

from pathlib import Path

import pytest

from rlm_core.files import write_jsonl, write_record
from rlm_core.records import FileRef, IterationResults, Rollout, StageResult, TrainReport, Verdict
from rlm_core.summary import problem_metrics, problem_outcomes, summarise
from tests import tiny


def rollout(problem_id: str, index: int, length: int, reason: str = "stop") -> Rollout:
    return Rollout.model_validate(
        {
            "problem_id": problem_id,
            "index": index,
            "seed": 0,
            "prompt_tokens": [1],
            "tokens": [1] * length,
            "logprobs": [-1.0] * length,
            "text": f"answer {index}",
            "finish_reason": reason,
        }
    )


def test_the_shortest_answer_that_passed_and_was_not_cut_off_is_kept() -> None:
    problems = tiny.problems(2)
    first, second = (problem.id for problem in problems)
    rollouts = [
        rollout(first, 0, 1),
        rollout(first, 1, 2, "length"),
        rollout(first, 2, 4),
        rollout(first, 3, 3, "code"),
        rollout(second, 0, 2, "length"),
    ]
    verdicts = [
        Verdict(
            rollout_id=r.id,
            problem_id=r.problem_id,
            status="failed" if r.tokens == (1,) else "passed",
            sandbox="none",
            reward=float(r.tokens != (1,)),
        )
        for r in rollouts
    ]
    kept = problem_outcomes(problems, rollouts, verdicts)
    assert [(o.rollouts, o.passed, o.passed_text) for o in kept] == [(4, 3, "answer 3"), (1, 1, None)]


def judged(rollout: Rollout, reward: float, latency_s: float, status: str = "failed") -> Verdict:
    content = {"rollout_id": rollout.id, "problem_id": rollout.problem_id, "status": status, "sandbox": "none"}
    return Verdict.model_validate(content | {"reward": reward, "latency_s": latency_s})


def test_each_problem_has_mean_and_spread_of_its_rewards_its_lengths_and_latencies() -> None:
    """Those that the machinery lost say nothing about it."""
    problems = tiny.problems(3)
    first, second, unasked = problems
    rollouts = [*(rollout(first.id, index, length) for index, length in enumerate((2, 4, 9))), rollout(second.id, 0, 5)]
    verdicts = [
        judged(rollouts[0], 1.0, 0.1, "passed"),
        judged(rollouts[1], 0.5, 0.3),
        judged(rollouts[2], 0.0, 9.0, "infrastructure"),
        judged(rollouts[3], 0.0, 0.2),
    ]
    one, other, none = problem_metrics(problems, rollouts, verdicts)
    assert (one.problem_id, one.entry_point, one.source) == (first.id, first.entry_point, first.provenance.source)
    assert (one.rollouts, one.passed, one.reward_mean, one.reward_std) == (2, 1, 0.75, 0.25)
    assert one.answer_tokens_mean == 5.0
    assert one.verify_latency_mean_s == pytest.approx(0.2)
    assert (other.rollouts, other.passed, other.reward_mean, other.reward_std) == (1, 0, 0.0, 0.0)
    assert (none.problem_id, none.rollouts, none.reward_mean, none.verify_latency_mean_s) == (unasked.id, 0, 0.0, 0.0)


def results(directory: Path) -> IterationResults:
    """Of an iteration that made nothing: what is left are the figures of its answers."""
    rejections = FileRef.of(write_jsonl(directory / "rejections.jsonl", []))
    report = TrainReport(candidate=None, steps=3, tokens=70, groups=1, useful_groups=1, reward_mean=0.5, duration_s=2.0)
    made = StageResult(files={"rejections": rejections}, figures={"problems": 1, "asked": 0}).model_dump()
    shards = [StageResult(figures={"seconds": seconds}).model_dump() for seconds in (1.5, 0.5)]
    trained = StageResult(files={"report": FileRef.of(write_record(directory / "train.json", report))}).model_dump()
    return IterationResults.model_validate(
        dict.fromkeys(("generated", "mutated", "filtered"), made)
        | {"rollouts": shards, "verdicts": [], "trained": trained, "exams": []}
    )


def test_latencies_of_all_verdicts_are_told_as_mean_percentiles_and_the_longest(tmp_path: Path) -> None:
    """Of 101 that take 0 to 100 s, besides one that the machinery lost; and who answered, and how fast."""
    [problem] = tiny.problems(1)
    rollouts = [rollout(problem.id, index, 2) for index in range(102)]
    verdicts = [judged(each, 0.5, float(index)) for index, each in enumerate(rollouts[:101])]
    verdicts.append(judged(rollouts[101], 0.0, 1_000.0, "infrastructure"))
    found = summarise(4, "sha", results(tmp_path), [problem], rollouts, verdicts, duration_s=60.0)
    latency = found.verify_latency
    assert (latency.mean, latency.p50, latency.p90, latency.p99, latency.max) == (50.0, 50.0, 90.0, 99.0, 100.0)
    assert (found.policy, found.infrastructure_faults, found.reward_mean) == ("sha", 1, 0.5)
    assert (found.rollout_tokens, found.rollout_tokens_per_s) == (204, 102.0)
    assert (found.trained_steps, found.trained_tokens, found.train_s, found.duration_s) == (3, 70, 2.0, 60.0)
