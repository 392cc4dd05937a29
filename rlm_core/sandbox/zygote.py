"""The parent's side of a zygote: starts the process, asks it for children, notices when it is no longer well."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlm_core.sandbox.backends import Backend, Launch
from rlm_core.sandbox.child import Child, Deadline
from rlm_core.sandbox.interpreter import DEVICES, Interpreter, find_interpreter
from rlm_core.sandbox.limits import Limits

_MAX_REPLY_BYTES = 1 << 16


class ZygoteFault(Exception):
    """The sandbox's own machinery failed: it could not start, died, hung, or answered nonsense. One line says which."""


@dataclass(frozen=True)
class End:
    """How a child ended."""

    status: int
    """Exit status, or minus the number of the signal that killed it."""
    cpu_s: float
    """CPU seconds, user and system, of all its threads."""


class Zygote:
    """A running zygote. Not thread-safe; `Sandbox` holds the lock."""

    def __init__(self, backend: Backend, limits: Limits, hash_seed: int) -> None:
        """Start a zygote and wait until it is ready.

        Raises:
            ZygoteFault: it did not start.
        """
        self.limits = limits
        self._children: dict[int, Child] = {}
        interpreter = find_interpreter()
        launch = backend.launch(interpreter)
        self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with remote:
                self._process = _start(launch, remote, hash_seed)
        except OSError as error:
            self._control.close()
            raise ZygoteFault(f"cannot start {launch.command[0]}: {error.strerror}") from error
        # Also when nobody calls `close`. Bound to this process, because a fork of it has a copy of this object.
        self._stop = weakref.finalize(self, _stop, self._process, self._control, os.getpid())
        try:
            self._ask(_rules(interpreter, launch, limits), {"ready": bool}, timeout_s=limits.start_s)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the zygote, or of the bubblewrap process around it."""
        return self._process.pid

    def fork(self) -> Child:
        """Start a child, and wait until it has locked itself down.

        Raises:
            ZygoteFault: the zygote or the lockdown failed; no untrusted code has run yet.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = self._ask({"do": "fork"}, {"pid": int}, attach=[theirs.fileno()])["pid"]
            except BaseException:
                ours.close()
                raise
        child = Child(ours, pid, self.limits)
        self._children[pid] = child
        greeting = child.greeting(Deadline(self.limits.zygote_s))
        if greeting != "locked":
            raise ZygoteFault(greeting)
        return child

    def end(self, child: Child) -> End:
        """Kill a child, whatever it is doing.

        Raises:
            ZygoteFault: the zygote failed.
        """
        child.hang_up()
        reply = self._ask({"do": "end", "pid": child.pid}, {"status": int, "cpu_s": float})
        del self._children[child.pid]
        return End(**reply)

    def cpu_s(self, child: Child) -> float:
        """CPU seconds, user and system, that a child has used so far.

        Raises:
            ZygoteFault: the zygote failed.
        """
        reply = self._ask({"do": "look", "pid": child.pid}, {"cpu_s": float})
        return float(reply["cpu_s"])

    def end_all(self) -> None:
        """Kill the children that are left."""
        for child in list(self._children.values()):
            self.end(child)

    def close(self) -> None:
        """Kill the zygote and with it its children, without asking it. Does nothing the second time."""
        for child in self._children.values():
            child.hang_up()
        self._stop()

    def _ask(
        self,
        message: dict[str, Any],
        fields: dict[str, type],
        timeout_s: float | None = None,
        attach: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Send one message and return the reply, which must consist of these fields with values of these types."""
        self._control.settimeout(timeout_s or self.limits.zygote_s)
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], attach)
            reply = self._control.recv(_MAX_REPLY_BYTES)
        except TimeoutError:
            raise ZygoteFault("the sandbox's zygote does not answer") from None
        except OSError as error:
            raise ZygoteFault(f"the sandbox's zygote is gone: {self._last_words() or error.strerror}") from error
        if not reply:
            raise ZygoteFault(f"the sandbox's zygote ended: {self._last_words() or 'without a word'}")
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(reply)
            if isinstance(said, dict) and {name: type(value) for name, value in said.items()} == fields:
                return said
        raise ZygoteFault("the sandbox's zygote answered nonsense")

    def _last_words(self) -> str:
        """The last line that the zygote, or bwrap, wrote on standard error."""
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        text = self._process.stderr.read() or b""
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def _rules(interpreter: Interpreter, launch: Launch, limits: Limits) -> dict[str, Any]:
    """What the zygote has to know to lock down its children: its first message."""
    return {
        "listable": [str(path) for path in interpreter.readable],
        "readable": [str(path) for path in interpreter.exposed],
        "devices": DEVICES,
        "user": launch.user,
        "keep_read_access": launch.keep_read_access,
        "limits": limits.model_dump() | {"threads": limits.threads if launch.count_threads else None},
    }


def _start(launch: Launch, remote: socket.socket, hash_seed: int) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": str(hash_seed),
        # Each thread would reserve 64 MB of address space for its own heap, and that is what the memory limit counts.
        "MALLOC_ARENA_MAX": "2",
    }
    owner = os.pidfd_open(os.getpid())
    try:
        # -S: no site-packages; -s: none of the user's; -B: write no bytecode.
        arguments = ["-S", "-s", "-B", "-m", "inside", str(remote.fileno()), str(owner)]
        return subprocess.Popen(
            [*launch.command, *arguments],
            env=environment,
            cwd=launch.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(remote.fileno(), owner),
            start_new_session=True,  # no terminal, and a process group of its own that can be killed as a whole
        )
    finally:
        os.close(owner)


def _stop(process: subprocess.Popen[bytes], control: socket.socket, creator: int) -> None:
    """Kill the whole process group and release everything. Called once."""
    control.close()
    if os.getpid() == creator:
        # The group's leader has not been waited for, so its id cannot belong to another group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stderr is not None
    process.stderr.close()
