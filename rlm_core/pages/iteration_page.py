"""An iteration's page: its stages in counts and times, samples of its problems, answers to be looked at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from rlm_core.files import read_jsonl, read_record
from rlm_core.inventions import in_words
from rlm_core.pages.gate_page import heading
from rlm_core.pages.markdown import code, fenced, side_by_side, table, wrapped
from rlm_core.pages.suspects import suspects, why
from rlm_core.phrases import counted, groups_in_words, megabytes, number_of
from rlm_core.problems import Problem
from rlm_core.records import GateDecision, Rejection, Rollout, Verdict
from rlm_core.rounds import asked_problems
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of
from rlm_core.state.run import Made, Run
from rlm_core.summary import Summary

_SAMPLES = 3
_SUSPECTS = 2
"""Of each kind."""


@dataclass(frozen=True)
class Ended:
    """What the files of a finished iteration say."""

    summary: Summary
    decision: GateDecision
    problems: Sequence[Problem]
    rollouts: Sequence[Rollout]
    verdicts: Sequence[Verdict]
    """Rollouts and verdicts are gone from an iteration that was pruned."""
    proposed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By generate and mutate: proposals, and those that could not be read as such."""
    rejections: Sequence[Rejection] = ()
    """Of all three stages that make problems."""
    run_bytes: int = 0
    project_bytes: int = 0
    """What the iteration's directory takes on disk, and the whole project."""


def read_ended(project: Project, number: int, project_bytes: int) -> Ended:
    """Read a finished iteration's files.

    Args:
        project_bytes: what the whole project takes on disk, which is the same for each of its iterations.

    Raises:
        StageFailed: a file is missing or damaged; shards that are not there at all are not missed.
    """
    run = Run(project.run(number))
    rollouts = run.read_rollouts()
    return Ended(
        summary=read_record(run.summary, Summary),
        decision=run.read_decision(),
        problems=asked_problems(run, rollouts),
        rollouts=rollouts,
        verdicts=run.read_verdicts(),
        proposed={
            "generate": (_rows(run.made("proposals")), _rows(run.rejections("proposals"))),
            "mutate": (_rows(run.made("mutants")), _rows(run.rejections("mutants"))),
        },
        rejections=[
            rejection
            for path in map(run.rejections, get_args(Made))
            if path.is_file()
            for rejection in read_jsonl(path, Rejection)
        ],
        run_bytes=size_of(run.directory),
        project_bytes=project_bytes,
    )


def _rows(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.is_file() else 0


def iteration_page(ended: Ended) -> str:
    """The page in Markdown."""
    decision, texts = ended.decision, {rollout.id: rollout.text for rollout in ended.rollouts}
    parts = [
        *heading(decision, decision.outcome),
        "## Stages",
        _stages(ended),
        *_invented(ended),
        f"On disk: {megabytes(ended.run_bytes)}, the whole project {megabytes(ended.project_bytes)}.",
        *_rejected(ended.rejections),
        *_samples(ended, texts),
        *_suspicious(ended, texts),
    ]
    return "\n\n".join(parts) + "\n"


def _stages(ended: Ended) -> str:
    summary, decision = ended.summary, ended.decision
    whole = sum(summary.stage_seconds.values()) or 1.0
    exams = [
        f"{name} {found.incumbent:.3f} → {found.candidate:.3f}"
        for name, found in (("benchmark", decision.benchmark), ("holdout", decision.holdout))
        if found
    ]
    counts = {
        **{stage: f"{made} proposals, {broken} unusable" for stage, (made, broken) in ended.proposed.items()},
        "filter": f"{counted(summary.problems_by_source)} kept, {sum(summary.rejections_by_rule.values())} rejected",
        "rollout": f"{summary.rollouts} answers, {summary.rollout_tokens} tokens at "
        f"{summary.rollout_tokens_per_s:.0f} a second, {summary.truncated_share:.0%} cut off",
        # The name of the sandbox is the longest word, and the first that the UI may cut off.
        "verify": f"{summary.passed} passed ({summary.pass_rate:.1%}), mean reward {summary.reward_mean:.3f}, "
        f"{summary.infrastructure_faults} faults, {summary.verify_latency.p50 * 1e3:.0f} ms each in {summary.sandbox}",
        "train": f"{number_of(summary.trained_steps, 'step')} on {summary.trained_tokens} tokens "
        f"from {groups_in_words(summary)}, {summary.rehearsed} rehearsed",
        "evaluate": ", ".join(exams) or "no candidate to examine",
    }
    rows = [
        [stage, f"{seconds:.1f}", f"{seconds / whole:.0%}", counts.get(stage, "")]
        for stage, seconds in summary.stage_seconds.items()
    ]
    # The longest column is the last: the UI cuts off what is wider than its page.
    return table(["stage", "seconds", "share", "what came of it"], rows)


def _invented(ended: Ended) -> list[str]:
    """Below the table, as it would push the table's last columns out of the UI's page."""
    words = in_words(ended.summary)
    return [f"Proposals: {words}."] if words else []


def _rejected(rejections: Sequence[Rejection]) -> Iterator[str]:
    """Each rule with how often it refused a proposal, and the first one that it refused."""
    by_rule: dict[tuple[str, str], list[Rejection]] = {}
    for rejection in rejections:
        by_rule.setdefault((rejection.stage, rejection.rule), []).append(rejection)
    if by_rule:
        yield "## Rejected proposals"
        rows = [[stage, rule, str(len(those)), code(those[0].reason)] for (stage, rule), those in by_rule.items()]
        yield table(["stage", "rule", "how many", "why, for the first"], rows)


def _samples(ended: Ended, texts: Mapping[str, str]) -> Iterator[str]:
    """The problems on which the answers differ most, with the best and the worst of them."""
    judged: dict[str, list[Verdict]] = {}
    for verdict in ended.verdicts:
        if verdict.judged and verdict.rollout_id in texts:
            judged.setdefault(verdict.problem_id, []).append(verdict)
    asked = [problem for problem in ended.problems if problem.id in judged]
    asked.sort(key=lambda problem: abs(_passed(judged[problem.id]) / len(judged[problem.id]) - 0.5))
    if asked:
        yield "## Samples: problems, best and worst answers"
    for problem in asked[:_SAMPLES]:
        order = sorted(judged[problem.id], key=lambda verdict: (verdict.reward, verdict.score))
        worst, best = order[0], order[-1]
        yield f"### {code(problem.entry_point)}, {_passed(order)} of {len(order)} passed"
        yield wrapped(problem.prompt)
        yield fenced(side_by_side(*(f"{_paid(v)}\n\n{texts[v.rollout_id]}" for v in (best, worst))))


def _passed(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.passed for verdict in verdicts)


def _paid(verdict: Verdict) -> str:
    return f"paid {verdict.reward:.2f}, {verdict.status}{f': {verdict.reason}' if verdict.reason else ''}"


def _suspicious(ended: Ended, texts: Mapping[str, str]) -> Iterator[str]:
    if not ended.verdicts:
        yield "Answers and verdicts of this iteration were pruned."
        return
    found = suspects(ended.verdicts)
    yield "## To be looked at"
    if not found:
        yield "No answer was refused although its tests passed, tried what is blocked, crashed or ran out of time."
    else:
        yield table(["answers that", "how many"], [[kind, str(len(those))] for kind, those in found.items()])
    names = {problem.id: problem.entry_point for problem in ended.problems}
    for kind, those in found.items():
        for verdict in those[:_SUSPECTS]:
            yield f"### {code(names.get(verdict.problem_id, '?'))} {kind}: {code(why(verdict) or 'no reason given')}"
            yield wrapped(texts.get(verdict.rollout_id, "(this answer was not kept)"))
