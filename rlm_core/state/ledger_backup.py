"""A second copy of the ledger, and how to have it again from the run directories when both are damaged."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rlm_core.config_file import load_sections
from rlm_core.errors import LedgerError, RlmError, StageFailed
from rlm_core.files import move_into_place, read_record, write_atomic
from rlm_core.model.adapters import base_policy, first_adapter
from rlm_core.records import AdapterRef, GateDecision
from rlm_core.rounds import asked_problems
from rlm_core.state.ledger import Base, Ledger, Move, open_ledger
from rlm_core.state.ledger_file import WAY_OUT
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from rlm_core.summary import Summary, problem_outcomes


@dataclass(frozen=True)
class Rebuilt:
    """What came of a rebuilding."""

    from_backup: bool
    iterations: tuple[int, ...]
    """Those that are in the ledger now."""
    left_out: dict[str, str]
    """Run directories that could not be read, and why."""
    damaged: Path | None
    """Where the ledger is that was there before."""


def back_up(project: Project) -> None:
    """Copy the ledger to `project.ledger_backup`, whole or not at all; a damaged one is not copied.

    Raises:
        LedgerError: the ledger is damaged.
        StageFailed: the disk is full or not writable.
    """
    with closing(sqlite3.connect(project.ledger, timeout=30)) as source:
        if reason := _damage(source):
            raise LedgerError(f"{project.ledger} is damaged: {reason}; {WAY_OUT}")

        def copy(temporary: Path) -> None:
            with closing(sqlite3.connect(temporary)) as target:
                source.backup(target)

        write_atomic(project.ledger_backup, copy)


def back_up_if_behind(project: Project, ledger: Ledger) -> None:
    """Copy the ledger when the incumbent moved since it was copied last: the iteration was killed before it did.

    Raises:
        LedgerError: the ledger is damaged.
        StageFailed: the disk is full or not writable.
    """
    moves = _incumbents(ledger)
    if len(moves) > 1 and moves != _incumbents_in_backup(project):  # the first is what the project was begun with
        back_up(project)


def _incumbents(ledger: Ledger) -> list[Move]:
    return [move for move in ledger.moves() if move.name == "accepted"]


def _incumbents_in_backup(project: Project) -> list[Move]:
    try:
        with open_ledger(project.ledger_backup, create=False) as ledger:
            return _incumbents(ledger)
    except LedgerError:
        return []


def rebuild(project: Project) -> Rebuilt:
    """Make the ledger anew: from its backup where that is whole, and all finished iterations that the backup lacks.

    Exam reports since the backup are not restored; those exams are sat again when they are needed. Neither is what was
    done by hand. The ledger that was there is kept beside the new one. The caller holds the project.

    Raises:
        LedgerError: there is nothing to make it from.
        StageFailed: the disk is full or not writable.
    """
    found: list[int] = []
    left_out: dict[str, str] = {}
    adapters: dict[str, AdapterRef] = {}
    whole = _is_whole(project.ledger_backup)

    def make(temporary: Path) -> None:
        temporary.unlink()
        if whole:
            temporary.write_bytes(project.ledger_backup.read_bytes())
        with open_ledger(temporary, anew=True) as ledger:
            for run in _decided(project):
                try:
                    _replay(ledger, run, adapters)
                except RlmError as error:
                    left_out[run.directory.name] = str(error)
            found.extend(entry.number for entry in ledger.history())
        if not found:
            raise LedgerError(f"{project.root}: no backup of the ledger and no finished iteration to make it from")

    fresh = write_atomic(project.root / "ledger-rebuilt.sqlite", make)
    damaged = _put_aside(project.ledger)
    move_into_place(fresh, project.ledger)
    return Rebuilt(whole, tuple(found), left_out, damaged)


def _replay(ledger: Ledger, run: Run, adapters: dict[str, AdapterRef]) -> None:
    """Commit a finished iteration from its directory; one that is in the ledger stays as it is.

    Args:
        adapters: those of the iterations before, by their digests; this one's is added.
    """
    config = load_sections(run.config, ("model", "train", "gate"))
    decision = run.read_decision()
    if ledger.base() is None:
        ledger.begin(Base.of(base_policy(config)), first_adapter(config))
    if decision.candidate is not None:
        sha256 = decision.candidate.sha256
        adapters[sha256] = AdapterRef(path=str(run.adapter), sha256=sha256)
    rollouts = run.read_rollouts()
    ledger.commit(
        _with_adapters(decision, adapters),
        config.gate.ema_weight,
        problem_outcomes(
            asked_problems(run, rollouts),
            rollouts,
            run.read_verdicts(),
        ),
        read_record(run.summary, Summary).model_dump(mode="json"),
        config.train.rehearsal.corpus_size,
        config.gate.infer_staleness,
    )


def _with_adapters(decision: GateDecision, adapters: dict[str, AdapterRef]) -> GateDecision:
    """The decision with adapters where they are now: the project may have been moved since."""
    named = {name: getattr(decision, name) for name in ("candidate", "incumbent", "learner")}
    return decision.model_copy(
        update={name: adapters.get(adapter.sha256, adapter) for name, adapter in named.items() if adapter}
    )


def _decided(project: Project) -> list[Run]:
    """The iterations that were decided, oldest first."""
    return [run for run in project.all_runs() if run.decision.is_file()]


def _is_whole(path: Path) -> bool:
    if not path.is_file():
        return False
    with closing(sqlite3.connect(path)) as connection:
        return _damage(connection) is None


def _damage(connection: sqlite3.Connection) -> str | None:
    """What SQLite finds wrong with the file, or None. That it is empty is nothing wrong to SQLite."""
    try:
        [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    if version == 0:
        return "it is empty"
    return None if found == "ok" else str(found)


def _put_aside(path: Path) -> Path | None:
    """Give the file a second name, which is returned; None when there is none. Its journal belongs to it and goes.

    The file keeps its first name until another takes it: a project is never without a ledger.

    Raises:
        StageFailed: the file system cannot do it.
    """
    if not path.exists():
        return None
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    journal = path.with_name(f"{path.name}-journal")
    try:
        os.link(path, aside)
        if journal.exists():
            journal.replace(aside.with_name(f"{aside.name}-journal"))
    except OSError as error:
        raise StageFailed(f"cannot keep {path} as {aside.name}: {error.strerror}; move it away yourself") from error
    return aside
