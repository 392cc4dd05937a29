"""How an iteration ends: the gate's decision, the page that explains it, and the ledger's transaction."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rlm_core import gate
from rlm_core.comparison import ExamPair
from rlm_core.config import Config
from rlm_core.errors import StageFailed
from rlm_core.files import read_jsonl, read_record, write_jsonl, write_record, write_text
from rlm_core.iteration import Iteration
from rlm_core.pages.exam_answers import answers_behind
from rlm_core.pages.gate_page import SuiteShown, page
from rlm_core.records import (
    ExamReport,
    GateDecision,
    IterationResults,
    Lineage,
    PastScores,
    Record,
    Rollout,
    StageResult,
    TrainReport,
    Verdict,
)
from rlm_core.rounds import asked_problems
from rlm_core.sources import read_problems
from rlm_core.state.ledger import open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from rlm_core.summary import Summary, problem_metrics, problem_outcomes, summarise

RecordT = TypeVar("RecordT", bound=Record)


class Exams:
    """The reports of an iteration's exams."""

    def __init__(self, results: Sequence[StageResult]):
        self._reports = {
            (result.figures["who"], result.figures["suite"]): read_record(Path(result.files["report"].path), ExamReport)
            for result in results
        }

    def of(self, who: str, suite: str) -> ExamReport:
        """Raises StageFailed when there is none."""
        if (who, suite) not in self._reports:
            raise StageFailed(f"gate: the {who}'s exam on {suite} is missing; nothing is decided")
        return self._reports[who, suite]

    def sat(self, who: str, suite: str) -> bool:
        return (who, suite) in self._reports

    def pair(self, suite: str) -> ExamPair:
        """Incumbent and candidate. The base model's exam is shown beside theirs and must be of the same kind."""
        pair = ExamPair(self.of("incumbent", suite), self.of("candidate", suite))
        ExamPair(self.of("base", suite), pair.incumbent)
        return pair


def settled(iteration: Iteration, config: Config, exams: Sequence[StageResult]) -> bool:
    """Whether the exams on the benchmark alone settle that it is no accept, so that nobody need sit the holdout."""
    benchmark = Exams(exams).pair(config.evaluate.benchmark)
    return gate.settled(benchmark, config.gate, _past(iteration, benchmark), _lineage(iteration))


def decide_by_rule(
    iteration: Iteration, config: Config, trained: StageResult, exams: Sequence[StageResult]
) -> tuple[GateDecision, str]:
    """What the gate decides by its rule, and the page that explains it.

    Args:
        exams: reports of base, incumbent and candidate on both suites; on the benchmark alone where that has `settled`
            it, and none when there is no candidate.

    Raises:
        StageFailed: an exam is missing, empty or incomplete.
    """
    sat = Exams(exams)
    decision = _decide(iteration, config, trained, sat)
    return decision, explain(iteration, config, decision, trained, sat)


def explain(iteration: Iteration, config: Config, decision: GateDecision, trained: StageResult, sat: Exams) -> str:
    """The decision's page; it is written to the run's directory too."""
    project = Project(Path(iteration.project))
    suites = []
    for name, suite, comparison in (
        ("benchmark", config.evaluate.benchmark, decision.benchmark),
        ("holdout", config.evaluate.holdout, decision.holdout),
    ):
        if comparison is None:
            continue
        pair = sat.pair(suite)
        suites.append(
            SuiteShown(
                name=name,
                comparison=comparison,
                exams=pair,
                base=sat.of("base", suite),
                prompts={problem.id: problem.prompt for problem in read_problems(suite)},
                incumbent=answers_behind(project, pair.incumbent),
                candidate=answers_behind(project, pair.candidate),
            )
        )
    report = read_record(Path(trained.files["report"].path), TrainReport)
    text = page(decision, suites, config.gate, report, config.train)
    write_text(Run(Path(iteration.directory)).gate_page, text)
    return text


def finish(iteration: Iteration, config: Config, decision: GateDecision, results: IterationResults) -> Summary:
    """Write decision and summary, and commit them to the ledger in one transaction."""
    project, run = Project(Path(iteration.project)), Run(Path(iteration.directory))
    sampled = list(_all(results.rollouts, "rollouts", Rollout))
    problems = asked_problems(run, sampled)
    judged = list(_all(results.verdicts, "verdicts", Verdict))
    summary = summarise(
        iteration.number,
        iteration.learner.name,
        results,
        problems,
        sampled,
        judged,
        time.monotonic() - iteration.started,
    )
    _remove_other_shards(run, results)
    write_jsonl(run.problem_metrics, problem_metrics(problems, sampled, judged))
    write_record(run.summary, summary)
    write_record(run.decision, decision)
    with open_ledger(project.ledger) as ledger:
        ledger.commit(
            decision,
            config.gate.ema_weight,
            problem_outcomes(problems, sampled, judged),
            summary.model_dump(mode="json"),
            config.train.rehearsal.corpus_size,
            config.gate.infer_staleness,
        )
    if decision.accepted:
        back_up(project)
    run.remove_unfinished()
    return summary


def _decide(iteration: Iteration, config: Config, trained: StageResult, exams: Exams) -> GateDecision:
    candidate, lineage = iteration.candidate(trained), _lineage(iteration)
    if candidate is None or candidate.adapter is None:
        return gate.nothing_learnt(iteration.number, config.gate, lineage)
    benchmark, holdout = exams.pair(config.evaluate.benchmark), config.evaluate.holdout
    return gate.decide(
        iteration.number,
        benchmark,
        exams.pair(holdout) if exams.sat("candidate", holdout) else None,
        config.gate,
        _past(iteration, benchmark),
        candidate.adapter,
        lineage,
        iteration.stage_seed("gate"),
    )


def _lineage(iteration: Iteration) -> Lineage:
    return Lineage(iteration.incumbent.adapter, iteration.learner.adapter, iteration.waited, iteration.tries)


def _past(iteration: Iteration, benchmark: ExamPair) -> PastScores:
    with open_ledger(Project(Path(iteration.project)).ledger) as ledger:
        return ledger.past_scores(benchmark.incumbent.suite_digest)


def _remove_other_shards(run: Run, results: IterationResults) -> None:
    """Delete what a try with other settings left: who reads the directory later would take it for a part of this."""
    shards = (("rollouts", run.rollouts, results.rollouts), ("verdicts", run.verdicts, results.verdicts))
    for name, directory, written in shards:
        own = {Path(result.files[name].path).name for result in written}
        for path in directory.glob("*.jsonl"):
            if path.name not in own:
                path.unlink()


def _all(results: Sequence[StageResult], name: str, kind: type[RecordT]) -> Iterator[RecordT]:
    for result in results:
        yield from read_jsonl(Path(result.files[name].path), kind)
