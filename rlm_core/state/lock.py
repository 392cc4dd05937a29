"""One process at a time: a lock file that names its holder. The lock is the kernel's and dies with the holder.

Both the file and its directory are locked. The file can be removed while it is held, and another one locked in its
place; of the directory, other machines that share it over a network would not see the lock.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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

    handles: tuple[int, int]
    """The open directory and file. Whoever inherits them holds the lock as well."""
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
    with _opened(path) as lock:
        directory, file = lock
        _acquire(directory, file, path, time.monotonic() + wait_s, on_wait)
        before = _signed(file)
        _sign(file, path, Holder(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"), flow_run))
        try:
            yield Lock(lock, before)
        finally:
            with suppress(OSError):
                os.ftruncate(file, 0)


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock file at this path, by what stands in it; not who was killed, as far as this machine knows."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        holder = _signed(file)
        if holder:
            os.kill(holder.pid, 0)
        return holder
    except (ProcessLookupError, TypeError, OverflowError):  # killed; or the file was damaged
        return None
    except PermissionError:  # it is somebody else's process
        return holder
    finally:
        os.close(file)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """The directory and the lock file in it, open."""
    with ExitStack() as opened:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            directory = os.open(path.parent, os.O_RDONLY)
            opened.callback(os.close, directory)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            opened.callback(os.close, file)
        except OSError as error:
            raise StageFailed(f"cannot write {path}: {error.strerror}") from error
        yield directory, file


def _acquire(directory: int, file: int, path: Path, deadline: float, on_wait: Callable[[str], None]) -> None:
    while True:
        try:
            _lock(directory, file)
            return
        except BlockingIOError:
            busy = f"{path.parent} is in use by {_signed(file) or 'another process'}"
            if time.monotonic() >= deadline:
                raise Busy(busy) from None
            on_wait(busy)
            time.sleep(_LOOK_EVERY_S)


def _lock(directory: int, file: int) -> None:
    """Raises BlockingIOError when one of them is locked."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # some network file systems lock files alone
        pass
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sign(handle: int, path: Path, holder: Holder) -> None:
    """Write who holds the lock, for those who are refused or come after."""
    line = json.dumps(asdict(holder)).encode() + b"\n"
    try:
        os.pwrite(handle, line, 0)
        os.ftruncate(handle, len(line))  # last: killed in between, it has been signed
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror}") from error


def _signed(handle: int) -> Holder | None:
    """Who wrote in the lock file last; None when nobody did, or nothing readable."""
    try:
        return Holder(**json.loads(os.pread(handle, 1_000, 0).partition(b"\n")[0]))
    except (ValueError, TypeError, OSError):
        return None
