"""An iteration in figures: what happened, per problem and in all."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from rlm_core.files import read_jsonl, read_record
from rlm_core.inventions import Inventions
from rlm_core.judging import sandbox_used
from rlm_core.problems import Problem
from rlm_core.records import IterationResults, Record, Rejection, Rollout, TrainReport, Verdict
from rlm_core.state.ledger import ProblemOutcome


class ProblemMetrics(Record):
    """How one problem's group of rollouts did."""

    problem_id: str
    entry_point: str
    source: str
    rollouts: int
    passed: int
    reward_mean: float
    reward_std: float
    answer_tokens_mean: float
    verify_latency_mean_s: float


class Latency(Record):
    """Seconds per verification."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Summary(Inventions):
    """One iteration in figures."""

    iteration: int
    policy: str
    """The learner, which answered: `base` or the SHA-256 of its adapter."""
    problems_by_source: dict[str, int]
    rejections_by_rule: dict[str, int]
    rollouts: int
    passed: int
    infrastructure_faults: int
    pass_rate: float
    reward_mean: float
    rollout_tokens: int
    rollout_tokens_per_s: float
    truncated_share: float
    sandbox: str
    verify_latency: Latency
    trained_steps: int
    trained_tokens: int
    rehearsed: int = 0
    """Answers of earlier iterations that were trained on too."""
    groups: int = 0
    useful_groups: int
    """Those that have something to teach, as their answers were not all paid the same."""
    replacements: int = 0
    """Groups of further problems, asked because others had nothing to teach."""
    train_s: float
    duration_s: float
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    """Of each stage, all shards and exams together. Rollouts and their verification overlap, and what an interrupted
    run had done counts, so the sum is not the duration."""


def summarise(
    iteration: int,
    policy: str,
    results: IterationResults,
    problems: Sequence[Problem],
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    duration_s: float,
) -> Summary:
    """The figures of a whole iteration.

    Args:
        policy: the learner's name.
        problems: those that were asked, replacements among them.

    Raises:
        StageFailed: a file of the results is missing or damaged.
    """
    trained = read_record(Path(results.trained.files["report"].path), TrainReport)
    rollout_s = float(np.sum([result.figures["seconds"] for result in results.rollouts]))
    judged = [verdict for verdict in verdicts if verdict.judged]
    tokens = sum(len(rollout.tokens) for rollout in rollouts)
    passed = sum(verdict.passed for verdict in judged)
    return Summary(
        iteration=iteration,
        policy=policy,
        problems_by_source=dict(Counter(problem.provenance.source for problem in problems)),
        rejections_by_rule=dict(Counter(_rules_broken(results))),
        **dict(Inventions.of(results.made)),
        rollouts=len(rollouts),
        passed=passed,
        infrastructure_faults=len(verdicts) - len(judged),
        pass_rate=passed / max(1, len(judged)),
        reward_mean=_mean([verdict.reward for verdict in judged]),
        rollout_tokens=tokens,
        rollout_tokens_per_s=tokens / max(rollout_s, 1e-9),
        truncated_share=_mean([rollout.truncated for rollout in rollouts]),
        sandbox=sandbox_used(verdicts),
        verify_latency=_latency([verdict.latency_s for verdict in judged]),
        trained_steps=trained.steps,
        trained_tokens=trained.tokens,
        rehearsed=trained.rehearsed,
        groups=trained.groups,
        useful_groups=trained.useful_groups,
        replacements=len(problems) - int(str(results.filtered.figures["problems"])),
        train_s=trained.duration_s,
        duration_s=duration_s,
        stage_seconds=results.stage_seconds(),
    )


def _rules_broken(results: IterationResults) -> Iterator[str]:
    for result in results.made:
        yield from (rejection.rule for rejection in read_jsonl(Path(result.files["rejections"].path), Rejection))


def problem_metrics(
    problems: Sequence[Problem], rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]
) -> list[ProblemMetrics]:
    """Figures of each problem, in the order of the problems."""
    by_problem = _by_problem(verdicts)
    lengths = defaultdict(list)
    for rollout in rollouts:
        lengths[rollout.problem_id].append(len(rollout.tokens))
    return [
        ProblemMetrics(
            problem_id=problem.id,
            entry_point=problem.entry_point,
            source=problem.provenance.source,
            rollouts=len(by_problem[problem.id]),
            passed=sum(verdict.passed for verdict in by_problem[problem.id]),
            reward_mean=_mean([verdict.reward for verdict in by_problem[problem.id]]),
            reward_std=float(np.std([verdict.reward for verdict in by_problem[problem.id]] or [0.0])),
            answer_tokens_mean=_mean(lengths[problem.id]),
            verify_latency_mean_s=_mean([verdict.latency_s for verdict in by_problem[problem.id]]),
        )
        for problem in problems
    ]


def problem_outcomes(
    problems: Sequence[Problem], rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]
) -> list[ProblemOutcome]:
    """What the ledger keeps of each problem: its measured pass rate, and its shortest answer that passed.

    An answer that the limit on tokens cut off is not kept: rehearsing it would teach to end in mid-sentence.
    """
    by_problem = _by_problem(verdicts)
    passed_ids = {verdict.rollout_id for verdict in verdicts if verdict.passed}
    shortest: dict[str, Rollout] = {}
    for rollout in sorted(rollouts, key=lambda rollout: len(rollout.tokens)):
        if rollout.id in passed_ids and not rollout.truncated:
            shortest.setdefault(rollout.problem_id, rollout)
    result = []
    for problem in problems:
        answer = shortest.get(problem.id)
        result.append(
            ProblemOutcome(
                problem=problem,
                rollouts=len(by_problem[problem.id]),
                passed=sum(verdict.passed for verdict in by_problem[problem.id]),
                passed_rollout_id=answer.id if answer else None,
                passed_text=answer.text if answer else None,
            )
        )
    return result


def _by_problem(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    grouped: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.judged:
            grouped[verdict.problem_id].append(verdict)
    return grouped


def _latency(seconds: Sequence[float]) -> Latency:
    values = np.array(seconds or [0.0])
    p50, p90, p99 = (float(value) for value in np.percentile(values, [50, 90, 99]))
    return Latency(mean=float(values.mean()), p50=p50, p90=p90, p99=p99, max=float(values.max()))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
