"""One process at a time: a lock file that names its holder. The lock is the kernel's and dies with the holder."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlm_core.errors import Busy, StageFailed

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, as it stands in the lock file."""

    pid: int
    since: str
    flow_run: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} since {self.since}"


@dataclass(frozen=True)
class Lock:
    """A lock that is held."""

    handle: int
    """The open file. Whoever inherits it holds the lock as well."""
    before: Holder | None
    """The holder before, when it was killed without letting go."""


@contextmanager
def locked(
    path: Path,
    wait_s: float = 0.0,
    flow_run: str | None = None,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Iterator[Lock]:
    """Hold the lock file at this path, and so the directory that it is in.

    Args:
        wait_s: how long to wait for another holder.
        flow_run: id of the flow run that holds it, for `Holder`.
        on_wait: called several times a second while waiting, with who holds the lock; what it raises ends that.

    Raises:
        Busy: another process holds it; the message says which, and since when.
        StageFailed: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror}") from error
    try:
        _acquire(handle, path, time.monotonic() + wait_s, on_wait)
        before = _signed(handle)
        _sign(handle, path, Holder(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"), flow_run))
        try:
            yield Lock(handle, before)
        finally:
            with suppress(OSError):
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, deadline: float, on_wait: Callable[[str], None]) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            busy = f"{path.parent} is in use by {_signed(handle) or 'another process'}"
            if time.monotonic() >= deadline:
                raise Busy(busy) from None
            on_wait(busy)
            time.sleep(_LOOK_EVERY_S)


def _sign(handle: int, path: Path, holder: Holder) -> None:
    """Write who holds the lock, for those who are refused or come after."""
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
