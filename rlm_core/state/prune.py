"""Which files of finished iterations nothing needs any more."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlm_core.errors import RlmError, StageFailed
from rlm_core.files import files_below, read_record
from rlm_core.phrases import megabytes
from rlm_core.records import ExamReport
from rlm_core.state.ledger import Ledger, open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project
from rlm_core.state.run import Run

_DAYS_TO_GO_ON = 7
"""How long an exam by hand that was stopped may be gone on with."""


@dataclass(frozen=True)
class Removable:
    """What may go, and why."""

    path: Path
    """A directory."""
    bytes: int
    reason: str
    files: tuple[Path, ...] | None = None
    """Those of the directory's files that may go; None: all of it."""


def removable(project: Project, ledger: Ledger, keep: int) -> list[Removable]:
    """What may go, oldest first. Nothing of an iteration that has not ended, and no adapter that the ledger leads to.

    Args:
        keep: newest finished iterations of which everything stays.
    """
    return list(_found(project, ledger, keep))


def _found(project: Project, ledger: Ledger, keep: int) -> Iterator[Removable]:
    history = ledger.history()
    in_use = ledger.adapters_in_use()
    used = {Path(adapter.path).resolve() for adapter in in_use}
    examined = {"base", *(adapter.sha256 for adapter in in_use)}
    for iteration in history[: max(0, len(history) - keep)]:
        run = Run(project.run(iteration.number))
        adapter = run.adapter
        if adapter.is_dir() and adapter.resolve() not in used:
            yield Removable(adapter, size_of(adapter), f"adapter, {iteration.decision.outcome}")
        # What only a run that goes on and a person who looks at it need; decisions, pages and reports are small.
        for old in filter(Path.is_dir, (run.results, run.rollouts, run.verdicts)):
            yield Removable(old, size_of(old), f"{old.name}, older than {keep} iterations")
        if answers := _answers_to_exams(run.exams, examined):
            yield _of_files(run.exams, f"exam answers, older than {keep} iterations", answers)
    yield from _parts_left(project, [Run(project.run(iteration.number)) for iteration in history])


def _parts_left(project: Project, ended: Sequence[Run]) -> Iterator[Removable]:
    """Parts of exams that were not finished: all of iterations that have ended, and the old ones of exams by hand."""
    for run in ended:
        if parts := tuple(run.exam_parts()):
            yield _of_files(run.exams, "parts of exams of an iteration that has ended", parts)
    by_hand, since = Run(project.root), time.time() - _DAYS_TO_GO_ON * 86_400
    if parts := tuple(file for file in by_hand.exam_parts() if _written(file) < since):
        yield _of_files(by_hand.exams, f"parts of exams that nobody went on with for {_DAYS_TO_GO_ON} days", parts)


def _of_files(directory: Path, reason: str, files: tuple[Path, ...]) -> Removable:
    return Removable(directory, sum(map(_bytes, files)), reason, files)


def _bytes(file: Path) -> int:
    """0 of one that went meanwhile."""
    with suppress(FileNotFoundError):
        return file.lstat().st_size
    return 0


def _written(file: Path) -> float:
    """When, in seconds since the epoch; now of one that went meanwhile."""
    with suppress(FileNotFoundError):
        return file.stat().st_mtime
    return time.time()


def _answers_to_exams(exams: Path, examined: Set[str]) -> tuple[Path, ...]:
    """Answers and verdicts behind the reports on others than these policies, whose reports the next gate may show."""
    return tuple(
        file
        for file in sorted(exams.glob("*.jsonl"))
        if _examinee(file.with_name(f"{file.name.removesuffix('.jsonl').rpartition('.')[0]}.json")) not in examined
    )


def _examinee(report: Path) -> str | None:
    """Whose exam a report is of; None where there is none that can be read: then nothing can be shown either."""
    try:
        return read_record(report, ExamReport).policy
    except StageFailed:
        return None


def remove(found: Sequence[Removable]) -> None:
    """Remove what was found.

    Raises:
        StageFailed: something cannot be removed; the rest of it is left.
    """
    for item in found:
        try:
            if item.files is None:
                shutil.rmtree(item.path)
            for file in item.files or ():
                file.unlink(missing_ok=True)  # an exam by hand removes its own
        except OSError as error:
            raise StageFailed(f"cannot remove {item.path}: {error.strerror or error}") from error


def keep_newest(project: Project, keep: int | None, say: Callable[[str], None]) -> None:
    """Remove at the end of an iteration what may go, when the config says so; the caller holds the project.

    The iteration is decided, so what cannot be removed is only said.

    Args:
        keep: as `removable`; None removes nothing.
        say: called with a line about what went.
    """
    if keep is None:
        return
    try:
        with open_ledger(project.ledger, create=False) as ledger:
            found = removable(project, ledger, keep)
        if found:
            back_up(project)  # what goes is what the ledger would be made anew from
            remove(found)
            say(f"removed {len(found)} items, {megabytes(sum(item.bytes for item in found))}, that nothing needs")
    except RlmError as error:
        say(f"old files are not removed: {error}")


def size_of(directory: Path) -> int:
    """Bytes of all files in a directory."""
    return sum(map(_bytes, files_below(directory)))
