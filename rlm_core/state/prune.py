"""Which files of finished iterations nothing needs any more."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlm_core.errors import RlmError, StageFailed
from rlm_core.files import files_below
from rlm_core.phrases import megabytes
from rlm_core.state.ledger import Ledger, open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project

_OLD = ("results", "rollouts", "verdicts")
"""What only a run that goes on and a person who looks at it need. Decisions, pages, exams and metrics are small."""


@dataclass(frozen=True)
class Removable:
    """A directory that may go, and why."""

    path: Path
    bytes: int
    reason: str


def removable(project: Project, ledger: Ledger, keep: int) -> list[Removable]:
    """What may go, oldest first. Nothing of an iteration that has not ended, and no adapter that the ledger leads to.

    Args:
        keep: newest finished iterations whose answers and verdicts stay.
    """
    return list(_found(project, ledger, keep))


def _found(project: Project, ledger: Ledger, keep: int) -> Iterator[Removable]:
    history = ledger.history()
    used = {Path(adapter.path).resolve() for adapter in ledger.adapters_in_use()}
    for iteration in history:
        directory = project.run(iteration.number)
        adapter = directory / "adapter"
        if adapter.is_dir() and adapter.resolve() not in used:
            yield Removable(adapter, size_of(adapter), f"adapter, {iteration.decision.outcome}")
        if iteration.number <= history[-1].number - keep:
            for name in _OLD:
                if (old := directory / name).is_dir():
                    yield Removable(old, size_of(old), f"{name}, older than {keep} iterations")


def remove(found: Sequence[Removable]) -> None:
    """Remove what was found.

    Raises:
        StageFailed: something cannot be removed; the rest of it is left.
    """
    for item in found:
        try:
            shutil.rmtree(item.path)
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
            say(f"removed {len(found)} directories, {megabytes(sum(item.bytes for item in found))}, that nothing needs")
    except RlmError as error:
        say(f"old files are not removed: {error}")


def size_of(directory: Path) -> int:
    """Bytes of all files in a directory."""
    total = 0
    for file in files_below(directory):
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total
