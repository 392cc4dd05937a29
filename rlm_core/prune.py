"""Which files of finished iterations nothing needs any more."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_core.errors import StageFailed
from rlm_core.ledger import Ledger
from rlm_core.project import Project

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
            yield Removable(adapter, _size(adapter), f"adapter, {iteration.decision.outcome}")
        if iteration.number <= history[-1].number - keep:
            for name in _OLD:
                if (old := directory / name).is_dir():
                    yield Removable(old, _size(old), f"{name}, older than {keep} iterations")


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


def _size(directory: Path) -> int:
    return sum(file.lstat().st_size for file in directory.rglob("*") if not file.is_dir())
