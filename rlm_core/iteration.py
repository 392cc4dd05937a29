"""The frame of an iteration: what it starts from, and how it ends."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rlm_core.adapters import WEIGHTS, check_adapter, check_trainable, read_adapter
from rlm_core.base_model import base_path, fingerprint
from rlm_core.comparison import ExamPair
from rlm_core.config import Config
from rlm_core.files import read_jsonl, read_record, remove_partial_files, write_json, write_jsonl, write_record
from rlm_core.gate import Lineage, decide, nothing_learnt
from rlm_core.ledger import Base, open_ledger
from rlm_core.ledger_backup import back_up
from rlm_core.problems import Problem
from rlm_core.project import Project
from rlm_core.records import (
    AdapterRef,
    ExamReport,
    FileRef,
    GateDecision,
    PolicyRef,
    Record,
    Rejection,
    Rollout,
    StageResult,
    Verdict,
)
from rlm_core.rehearsal import write_corpus
from rlm_core.sandbox import open_sandbox
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_problems
from rlm_core.summary import Summary, outcomes, problem_metrics, summarise
from rlm_core.train import TrainReport
from rlm_core.verifiers import Bench, prepare
from rlm_core.verifiers.check import check_problems

RecordT = TypeVar("RecordT", bound=Record)

DECISION = "decision.json"
"""A directory that has it belongs to a finished iteration."""


class Iteration(Record):
    """What all stages of one iteration share."""

    number: int
    project: str
    directory: str
    base: PolicyRef
    incumbent: PolicyRef
    learner: PolicyRef
    """What answers and is trained: the incumbent, or an earlier candidate that is on probation."""
    waited: int
    """Iterations that the learner has been on probation."""
    seed: int
    """Of this iteration; its stages' seeds derive from it."""
    exam_seed: int
    """The same in every iteration of a project, so that exams can be compared."""
    corpus: FileRef | None
    """What may be rehearsed: the corpus as earlier iterations left it. None when nothing is to be rehearsed."""
    started: float
    """On the monotonic clock: the other one may jump."""

    def stage_seed(self, stage: str) -> int:
        return derive_seed(self.seed, stage)

    def examined(self, train: StageResult) -> dict[str, PolicyRef]:
        """The policies that sit the exams; none when there is no candidate to decide about."""
        candidate = self.candidate(train)
        if candidate is None:
            return {}
        return {"base": self.base, "incumbent": self.incumbent, "candidate": candidate}

    def candidate(self, train: StageResult) -> PolicyRef | None:
        """The policy that the train stage made, if it made one."""
        weights = train.files.get(WEIGHTS)
        if weights is None:
            return None
        adapter = AdapterRef(path=str(Path(weights.path).parent), sha256=weights.sha256)
        return self.base.model_copy(update={"adapter": adapter})


def check(config: Config, say: Callable[[str], None] = lambda _: None) -> PolicyRef:
    """Check all that an iteration needs from outside the project, before any work is done; the base policy.

    Args:
        say: called with a line about each slow step, such as fetching the default model.

    Raises:
        UsageError: a suite, the bank, the base model or the first adapter is not usable.
        SandboxUnavailable: the configured sandbox cannot be had.
    """
    names = (config.generate.bank, config.evaluate.benchmark, config.evaluate.holdout)
    problems = [problem for name in names for problem in read_problems(name)]
    check_problems(problems, config.verify.limits, config.verify.functions)
    with open_sandbox(config.verify.sandbox, config.verify.limits, container=config.verify.container) as sandbox:
        prepare(problems, Bench(sandbox), trivial=False)
    path = base_path(config.model.base, say)
    first = None
    if config.model.adapter and not Project(Path(config.project)).ledger.exists():
        first = read_adapter(config.model.adapter)
        check_adapter(config.model.base, first)
    check_trainable(config.model.base, first, config.train.adapter)
    return PolicyRef(base=config.model.base, fingerprint=fingerprint(path))


def begin(config: Config) -> Iteration:
    """Check what an iteration needs and give it its number and directory.

    The caller holds the project (`Project.held`). A run that did not reach its gate has the same number again.

    Raises:
        UsageError, SandboxUnavailable: as `check`; or the project is about another base model.
        AdapterError: the incumbent is damaged, was made for another base or is not what `train.adapter` asks for.
        LedgerError: the ledger cannot be used.
    """
    base = check(config)
    project = Project(Path(config.project).absolute())
    with open_ledger(project.ledger) as ledger:
        first = read_adapter(config.model.adapter) if config.model.adapter and not ledger.base() else None
        ledger.begin(Base(name=base.base, fingerprint=base.fingerprint), first)
        number, lineage = ledger.next_iteration(), ledger.lineage()
        earlier = ledger.corpus(before=number) if config.train.rehearsal.share else None
    for adapter in filter(None, {lineage.incumbent, lineage.learner}):
        check_adapter(config.model.base, adapter)
    check_trainable(config.model.base, lineage.learner, config.train.adapter)
    directory = project.run(number)
    remove_partial_files(project.root)
    (directory / DECISION).unlink(missing_ok=True)  # of a gate that was killed before its commit
    write_json(directory / "config.json", config.dump())
    return Iteration(
        number=number,
        project=str(project.root),
        directory=str(directory),
        base=base,
        incumbent=base.model_copy(update={"adapter": lineage.incumbent}),
        learner=base.model_copy(update={"adapter": lineage.learner}),
        waited=lineage.waited,
        seed=derive_seed(config.seed, number),
        exam_seed=derive_seed(config.seed, "exams"),
        corpus=write_corpus(directory, earlier, config) if earlier is not None else None,
        started=time.monotonic(),
    )


def finish(
    iteration: Iteration,
    config: Config,
    made: Sequence[StageResult],
    rollouts: Sequence[StageResult],
    verdicts: Sequence[StageResult],
    trained: StageResult,
    exams: Sequence[StageResult],
) -> tuple[GateDecision, Summary]:
    """The gate stage: decide, write decision and summary, and commit them to the ledger in one transaction.

    Args:
        made: results of generate, mutate and filter, the last one holding the iteration's problems.
        exams: reports of incumbent and candidate on both suites; none when there is no candidate.
    """
    directory = Path(iteration.directory)
    problems = list(read_jsonl(Path(made[-1].files["problems"].path), Problem))
    sampled = list(_all(rollouts, "rollouts", Rollout))
    judged = list(_all(verdicts, "verdicts", Verdict))
    decision = _decide(iteration, config, trained, exams)
    summary = summarise(
        iteration.number,
        iteration.learner.name,
        problems,
        list(_all(made, "rejections", Rejection)),
        sampled,
        judged,
        read_record(Path(trained.files["report"].path), TrainReport),
        float(np.sum([result.figures["seconds"] for result in rollouts])),
        time.monotonic() - iteration.started,
        _stage_seconds(made, rollouts, verdicts, trained, exams),
    )
    write_jsonl(directory / "problem_metrics.jsonl", problem_metrics(problems, sampled, judged))
    write_record(directory / "summary.json", summary)
    write_record(directory / DECISION, decision)
    with open_ledger(Project(Path(iteration.project)).ledger) as ledger:
        ledger.commit(
            decision,
            config.gate.ema_weight,
            outcomes(problems, sampled, judged),
            summary.model_dump(mode="json"),
            config.train.rehearsal.corpus_size,
            config.gate.infer_staleness,
        )
    if decision.accepted:
        back_up(Project(Path(iteration.project)))
    return decision, summary


def _decide(iteration: Iteration, config: Config, trained: StageResult, exams: Sequence[StageResult]) -> GateDecision:
    candidate = iteration.candidate(trained)
    lineage = Lineage(iteration.incumbent.adapter, iteration.learner.adapter, iteration.waited)
    if candidate is None or candidate.adapter is None:
        return nothing_learnt(iteration.number, config.gate, lineage)
    reports = {
        (result.figures["who"], result.figures["suite"]): read_record(Path(result.files["report"].path), ExamReport)
        for result in exams
    }

    def pair(suite: str) -> ExamPair:
        return ExamPair(reports["incumbent", suite], reports["candidate", suite])

    with open_ledger(Project(Path(iteration.project)).ledger) as ledger:
        past = ledger.past_scores(reports["incumbent", config.evaluate.benchmark].suite_digest)
    return decide(
        iteration.number,
        pair(config.evaluate.benchmark),
        pair(config.evaluate.holdout),
        config.gate,
        past,
        candidate.adapter,
        lineage,
        iteration.stage_seed("gate"),
    )


def _stage_seconds(
    made: Sequence[StageResult],
    rollouts: Sequence[StageResult],
    verdicts: Sequence[StageResult],
    trained: StageResult,
    exams: Sequence[StageResult],
) -> dict[str, float]:
    parts = zip(("generate", "mutate", "filter"), ([result] for result in made), strict=True)
    stages = dict(parts) | {"rollout": rollouts, "verify": verdicts, "train": [trained], "evaluate": exams}
    return {stage: sum(result.seconds for result in results) for stage, results in stages.items()}


def _all(results: Sequence[StageResult], name: str, kind: type[RecordT]) -> Iterator[RecordT]:
    for result in results:
        yield from read_jsonl(Path(result.files[name].path), kind)
