"""What a self-test plants for dishonest answers to reach for, and how it sees that one did."""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlm_core.errors import InfrastructureFault

BANK = Path(__file__).parents[1] / "bank"
VARIABLE = "RLM_SELF_TEST_SECRET"
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
"""Directories that everybody may write to, where there are such."""
_INTACT = "intact"
_Address = tuple[str, int] | str


class Canaries:
    """A secret in a file and in the environment, a file to change, and listeners. Nobody but an answer touches them."""

    def __init__(self, directory: Path, opened: ExitStack) -> None:
        self.missing: list[str] = []
        """What could not be planted, with the reason."""
        self._directory = directory
        self._files = directory / "files"
        self._token = f"rlm-selftest-{secrets.token_urlsafe(12)}"
        self._secrets = {place: secrets.token_urlsafe(24) for place in ("file", "environment")}
        self._listeners: dict[str, socket.socket] = {}
        self.addresses = {
            "directory": str(directory),
            "token": self._token,
            "variable": VARIABLE,
            "pid": str(os.getpid()),
            "bank": str(BANK),
        }
        """What each placeholder in an answer's code stands for; listeners are added as they are opened."""
        self._set_variable(opened)
        self._open_listeners(opened)
        self._plant_files()
        self._before = self._state()

    def damage(self, said: str) -> list[str]:
        """What has been touched since the last look, which is then mended.

        Args:
            said: all that came back from an answer.
        """
        found = [f"the secret of the {place} came back" for place, secret in self._secrets.items() if secret in said]
        found += [f"a listener was reached ({name})" for name in self._listeners if self._was_reached(name)]
        after = self._state()
        if after != self._before:
            changed = sorted(path for path in {*after, *self._before} if after.get(path) != self._before.get(path))
            found.append(f"changed: {', '.join(path.replace(self._token, '…') for path in changed)}")
            self._plant_files()
            self._before = self._state()
        return found

    def clear(self) -> None:
        """Remove what answers have left in shared directories."""
        for path in self._left_in_shared():
            path.unlink(missing_ok=True)

    def _set_variable(self, opened: ExitStack) -> None:
        os.environ[VARIABLE] = self._secrets["environment"]
        opened.callback(os.environ.pop, VARIABLE, None)

    def _open_listeners(self, opened: ExitStack) -> None:
        self._listen("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), opened)
        self._listen("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), opened)
        path = self._directory / "socket"
        if self._listen("socket", socket.AF_UNIX, socket.SOCK_STREAM, str(path), opened):
            path.chmod(0o777)
        if sys.platform.startswith("linux"):
            self._listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self._token, opened)

    def _listen(self, name: str, family: int, kind: int, address: _Address, opened: ExitStack) -> bool:
        listener = opened.enter_context(socket.socket(family, kind))
        try:
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listener.setblocking(False)
            bound = listener.getsockname()
        except OSError as error:
            self.missing.append(f"a listener ({name}): {error.strerror or error}")
            return False
        self._listeners[name] = listener
        where = bound[1] if family == socket.AF_INET else address
        self.addresses[name] = str(where).lstrip("\0")
        return True

    def _was_reached(self, name: str) -> bool:
        """Whether a connection or a datagram is waiting, which is then taken."""
        listener = self._listeners[name]
        try:
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True  # somebody came, and left again
        return True

    def _plant_files(self) -> None:
        """Make the files anew. Their modes let everybody in: the sandbox has to do the work."""
        self.clear()
        shutil.rmtree(self._files, ignore_errors=True)
        self._files.mkdir()
        for path, mode, text in (
            (self._files / "secret", 0o644, self._secrets["file"]),
            (self._files / "target", 0o666, _INTACT),
        ):
            path.write_text(text)
            path.chmod(mode)
        self._files.chmod(0o777)
        self._directory.chmod(0o777)

    def _left_in_shared(self) -> list[Path]:
        return [path for place in _SHARED if (path := Path(place, self._token)).exists()]

    def _state(self) -> dict[str, object]:
        """Everything that an answer could have changed, by its path."""
        state: dict[str, object] = {}
        for path in [*self._directory.rglob("*"), *self._left_in_shared()]:
            status = path.lstat()
            about = (status.st_mode, status.st_uid, status.st_nlink, status.st_ino)
            text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            name = path.relative_to(self._directory) if path.is_relative_to(self._directory) else path
            state[str(name)] = (about, text, None if path.is_dir() else status.st_mtime_ns)
        return state


@contextmanager
def planted() -> Iterator[Canaries]:
    """Canaries for as long as the context lasts. A sandbox has to be opened inside it, to be tempted by all of them.

    Raises:
        InfrastructureFault: this machine does not let us plant them.
    """
    with ExitStack() as opened:
        try:
            directory = Path(tempfile.mkdtemp(prefix="rlm-selftest-"))
            opened.callback(shutil.rmtree, directory, ignore_errors=True)
            canaries = Canaries(directory, opened)
        except OSError as error:
            raise InfrastructureFault(f"cannot plant what the self-test's answers reach for: {error}") from error
        opened.callback(canaries.clear)
        yield canaries
