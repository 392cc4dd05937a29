"""A project's directory: one ledger, one lock, and a directory for each iteration."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
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
    def held(
        self,
        wait_s: float = 0.0,
        flow_run: str | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Iterator["Holder | None"]:
        """Hold the project: one iteration at a time. The lock is the kernel's, so a killed holder frees it at once.

        Args:
            wait_s: how long to wait for another holder.
            flow_run: id of the flow run that holds it, for `Holder`.
            on_wait: called several times a second while waiting, with who holds the project; what it raises ends that.

        Yields:
            The holder before, when it was killed without letting go.

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
            self._acquire(handle, time.monotonic() + wait_s, on_wait)
            before = _signed(handle)
            _sign(handle, path, Holder(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"), flow_run))
            try:
                yield before
            finally:
                with suppress(OSError):
                    os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def _acquire(self, handle: int, deadline: float, on_wait: Callable[[str], None]) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                busy = f"{self.root} is in use by {_signed(handle) or 'another process'}"
                if time.monotonic() >= deadline:
                    raise ProjectBusy(busy) from None
                on_wait(busy)
                time.sleep(_LOOK_EVERY_S)


_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Holder:
    """Who holds a project, as it stands in the lock file."""

    pid: int
    since: str
    flow_run: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} since {self.since}"


def _sign(handle: int, path: Path, holder: Holder) -> None:
    """Write who holds the project, for those who are refused or come after."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror}") from error


def _signed(handle: int) -> Holder | None:
    """Who wrote in the lock file last; None when nobody did, or nothing readable."""
    try:
        return Holder(**json.loads(os.pread(handle, 1_000, 0)))
    except (ValueError, TypeError, OSError):
        return None
