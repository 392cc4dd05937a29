"""Which files of finished iterations nothing needs any more."""

import shutil
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
            size = sum(file.stat().st_size for file in answers)
            yield Removable(run.exams, size, f"exam answers, older than {keep} iterations", answers)


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
                file.unlink()
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
    total = 0
    for file in files_below(directory):
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total
