"""A process that ends what a command has started when the command is gone, however it went, kill -9 included.

What is started with the guard's `environment` carries a mark, and so does what that starts in turn, in whichever
process group or session. Imported it is `Guard`; run as a script of its own it is the process.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_MARK = "RLM_STARTED_BY"
_PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.1


class Guard:
    """Ends the marked processes once this process is gone, or when it is asked to."""

    def __init__(self, *keeps: int) -> None:
        """
        Args:
            keeps: open files that the guard keeps open until all is ended, such as a lock.
        """
        self._mark = secrets.token_hex(8)
        self.environment = {_MARK: self._mark}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=keeps,
        )

    def end(self) -> None:
        """End what is left of the marked processes, and the guard."""
        self._process.communicate()  # closes its input, as this process's end would


def _end_marked(mark: str) -> None:
    """Ask the marked processes to end, also those that come while others go, and kill what takes too long."""
    deadline = time.monotonic() + _PATIENCE_S
    asked: set[int] = set()
    while found := _marked(mark):
        late = time.monotonic() > deadline
        for process in found if late else found - asked:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
        asked |= found
        time.sleep(_LOOK_EVERY_S)


def _marked(mark: str) -> set[int]:
    """The ids of the processes that were started with this mark in their environment."""
    wanted = f"{_MARK}={mark}"
    if not Path("/proc").is_dir():  # macOS
        listed = subprocess.run(["ps", "-A", "-E", "-o", "pid=,command="], capture_output=True, text=True, check=False)
        return {int(line.split()[0]) for line in listed.stdout.splitlines() if wanted in line}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is somebody else's, or has ended
            if wanted.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found


if __name__ == "__main__":
    os.read(0, 1)  # ends when the process that holds the other end has gone, or has closed it
    _end_marked(sys.argv[1])
