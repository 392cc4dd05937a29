"""What an iteration starts from; `conclude.py` has how it ends."""

import time
from collections.abc import Callable
from pathlib import Path

from rlm_core.config import Config
from rlm_core.files import remove_partial_files, write_json
from rlm_core.judging import open_configured
from rlm_core.model.adapters import WEIGHTS, base_policy, check_adapter, check_trainable, first_adapter
from rlm_core.model.base_model import base_path, check_base_weights
from rlm_core.records import (
    AdapterRef,
    FileRef,
    PolicyRef,
    Record,
    StageResult,
)
from rlm_core.seeds import derive_seed
from rlm_core.serving.remote import authorization
from rlm_core.sources import read_problems
from rlm_core.state.corpus_file import write_corpus
from rlm_core.state.ledger import Base, is_begun, open_ledger
from rlm_core.state.ledger_backup import back_up_if_behind
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from rlm_core.verifiers import Bench, prepare
from rlm_core.verifiers.check import check_problems


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
    tries: int
    """Candidates before that were not accepted."""
    seed: int
    """Of this iteration; its stages' seeds derive from it."""
    corpus: FileRef | None
    """What may be rehearsed and shown: the corpus as earlier iterations left it. None when nothing is to be."""
    started: float
    """On the monotonic clock: the other one may jump."""

    @property
    def project_name(self) -> str:
        return Path(self.project).name

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
        UsageError: a suite, the bank, the base model, the first adapter or the servers' token is not usable.
        SandboxUnavailable: the configured sandbox cannot be had.
        LedgerError: the project has a ledger that cannot be used.
    """
    if config.rollout.engine == "server":
        authorization(config.rollout)
    bank = read_problems(config.generate.bank)
    suites = (config.evaluate.benchmark, config.evaluate.holdout)
    exams = [problem for name in suites for problem in read_problems(name)]
    check_problems([*bank, *exams], config.verify.limits, config.verify.functions)
    with open_configured(config.verify) as sandbox:
        # The filter proves a bank's references, and refuses those problems alone whose own one fails.
        prepare([*exams, *([] if config.generate.proves_bank else bank)], Bench(sandbox), trivial=False)
    base = base_policy(config, say)
    first = None if is_begun(Project(Path(config.project)).ledger) else first_adapter(config)
    check_trainable(config.model.base, first, config.train.adapter)
    check_base_weights(base_path(config.model.base))
    return base


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
        ledger.begin(Base.of(base), None if ledger.base() else first_adapter(config))
        back_up_if_behind(project, ledger)
        number, lineage = ledger.next_iteration(), ledger.lineage()
        wanted = config.train.rehearsal.share or config.generate.shows_corpus
        earlier = ledger.corpus(before=number) if wanted else None
    for adapter in filter(None, {lineage.incumbent, lineage.learner}):
        check_adapter(config.model.base, adapter)
    check_trainable(config.model.base, lineage.learner, config.train.adapter)
    run = Run(project.run(number))
    remove_partial_files(project.root)
    for other in set(project.all_runs()) - {run}:
        other.remove_unfinished()  # of an iteration that was killed after its commit
    for left in (run.decision, run.gate_page):  # by a gate that was stopped before its commit
        left.unlink(missing_ok=True)
    write_json(run.config, config.dump())
    return Iteration(
        number=number,
        project=str(project.root),
        directory=str(run.directory),
        base=base,
        incumbent=base.model_copy(update={"adapter": lineage.incumbent}),
        learner=base.model_copy(update={"adapter": lineage.learner}),
        waited=lineage.waited,
        tries=lineage.tries,
        seed=derive_seed(config.seed, number),
        corpus=write_corpus(run, earlier, config) if earlier is not None else None,
        started=time.monotonic(),
    )
