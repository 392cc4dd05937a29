"""A project's directory: one ledger, one lock, and a directory for each iteration."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlm_core.errors import ProjectBusy, StageFailed


@dataclass(frozen=True)
class Project:
    """Where a project's files are."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.sqlite"

    @property
    def ledger_backup(self) -> Path:
        return self.root / "ledger.backup.sqlite"

    @property
    def runs(self) -> Path:
        """Where the directories of the iterations are."""
        return self.root / "runs"

    def run(self, iteration: int) -> Path:
        """The directory of an iteration's files."""
        return self.runs / f"{iteration:04d}"

    @contextmanager
    def held(self, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the project: one iteration at a time. The lock is the kernel's, so a killed holder frees it at once.

        Args:
            wait_s: how long to wait for another holder.

        Raises:
            ProjectBusy: another process holds it; the message says which, and since when.
            StageFailed: the project's directory cannot be written.
        """
        path = self.root / "lock"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StageFailed(f"cannot write {path}: {error.strerror}") from error
        try:
            self._acquire(handle, time.monotonic() + wait_s)
            _sign(handle, path)
            yield
        finally:
            os.close(handle)

    def _acquire(self, handle: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ProjectBusy(f"{self.root} is in use by {_holder(handle)}") from None
                time.sleep(0.2)


def _sign(handle: int, path: Path) -> None:
    """Write who holds the project, for those who are refused."""
    holder = json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")})
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, holder.encode(), 0)
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror}") from error


def _holder(handle: int) -> str:
    try:
        known = json.loads(os.pread(handle, 1_000, 0))
        return f"process {known['pid']} since {known['since']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
