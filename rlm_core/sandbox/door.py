"""A way in for a zygote that can inherit no descriptor: a socket file that it connects to."""

import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlm_core.sandbox.connection import Deadline

_LOOK_S = 0.1
"""How often to look whether the process that should come has ended instead."""


@dataclass(frozen=True)
class Door:
    """Where the zygote comes in, and how to end what is behind it."""

    file: Path
    """The socket file, alone in a directory that does not exist yet."""
    inside: str
    """What the file is called inside."""
    end: Callable[[], None]
    """Ends all that was started behind the door, whatever state it is in, and waits until it is gone."""

    @contextmanager
    def open(self) -> Iterator[socket.socket]:
        """A listening socket for one visitor; afterwards file and directory are gone.

        Raises:
            OSError: it cannot be made.
        """
        self.file.parent.mkdir(mode=0o700)  # nobody else comes as far as to the file
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self.file))
                self.file.chmod(0o666)  # the visitor has another user id
                listener.listen(1)
                yield listener
        finally:
            shutil.rmtree(self.file.parent)


def admit(listener: socket.socket, process: subprocess.Popen[bytes], deadline: Deadline) -> socket.socket | None:
    """The visitor's connection, or None when the process that should bring it about has ended.

    Raises:
        TimeoutError: nobody came in time.
    """
    while True:
        listener.settimeout(min(_LOOK_S, deadline.left_s()))
        try:
            return listener.accept()[0]
        except TimeoutError:
            if process.poll() is not None:
                return None


def visitor(stream: socket.socket) -> int:
    """Process id, as it is called here, of the process that connected."""
    pid, _user, _group = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)
