"""The process of a zygote, or what is around it: started with a control socket, killed with all that belongs to it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection

from rlm_core.sandbox.backends import Launch
from rlm_core.sandbox.connection import Connection, Deadline
from rlm_core.sandbox.door import Door, admit

_LAST_WORDS_S = 1.0
"""How long a process that has hung up may take to say why; a container's words come by way of the engine."""


class NotStarted(Exception):
    """A process was started, and no zygote came of it. One line says why."""


def start(launch: Launch, hash_seed: int, deadline: Deadline) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process of a zygote; also our end of its control socket.

    Raises:
        OSError: the command cannot be started.
        NotStarted: it was, and nothing came of it.
    """
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": str(hash_seed),
        # Each thread would reserve 64 MB of address space for its own heap, and that is what the memory limit counts.
        "MALLOC_ARENA_MAX": "2",
    }
    if sys.platform == "darwin":
        # Otherwise a library of macOS may end a child that was forked and not started anew. Read when a process starts.
        environment["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"
    # -S: no site-packages; -s: none of the user's; -B: write no bytecode.
    arguments = ["-S", "-s", "-B", "-m", "inside"]
    if launch.door is not None:
        return _start_behind(launch.door, launch, [json.dumps(environment), *arguments, launch.door.inside], deadline)
    stream, remote = socket.socketpair()
    with remote:
        try:
            return _spawn(launch, [*arguments, str(remote.fileno())], environment, remote.fileno()), stream
        except BaseException:
            stream.close()
            raise


def _start_behind(
    door: Door, launch: Launch, arguments: list[str], deadline: Deadline
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    with door.open() as listener:
        process = _spawn(launch, arguments, None)
        try:
            stream = admit(listener, process, deadline)
            if stream is None:
                raise NotStarted(f"the sandbox's zygote did not start: {last_words(process)}")
            return process, stream
        except BaseException as error:
            _end_process(process, door.end)
            assert process.stderr is not None
            process.stderr.close()
            if isinstance(error, TimeoutError):
                raise NotStarted("the sandbox's zygote did not come in time; limits.start_s says how long") from error
            raise


def _spawn(
    launch: Launch, arguments: list[str], environment: dict[str, str] | None, *inherited: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*launch.command, *arguments],
        env=environment,
        cwd=launch.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=inherited,
        start_new_session=True,  # no terminal, and a process group of its own that can be killed as a whole
    )


def last_words(process: subprocess.Popen[bytes]) -> str:
    """The last line that the zygote, or what is around it, wrote on standard error."""
    assert process.stderr is not None
    poller = select.poll()
    poller.register(process.stderr)
    text, until = b"", time.monotonic() + _LAST_WORDS_S
    while poller.poll(max(0.0, until - time.monotonic()) * 1e3) and (part := os.read(process.stderr.fileno(), 1 << 16)):
        text += part
    lines = text.decode("utf-8", "replace").strip().splitlines()
    telling = [line for line in lines if line and "--help'" not in line]  # `docker` ends with where to find help
    return telling[-1][:300] if telling else ""


def stop(
    process: subprocess.Popen[bytes],
    control: Connection,
    creator: int,
    real_pids: Collection[int] | None,
    end: Callable[[], None] | None,
) -> None:
    """Kill the whole process group, and children that may have left it, and release everything. Called once."""
    control.close()
    if os.getpid() == creator:
        # First, while the zygote still keeps the ids of those that are dead. When it is dead itself, ids are free for
        # others, but children are left only while a job runs, which notices that at once.
        for child in real_pids or ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _end_process(process, end)
    assert process.stderr is not None
    process.stderr.close()


def _end_process(process: subprocess.Popen[bytes], end: Callable[[], None] | None) -> None:
    if process.returncode is None:
        # The group's leader has not been waited for, so its id cannot belong to another group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if end is not None:
        end()
