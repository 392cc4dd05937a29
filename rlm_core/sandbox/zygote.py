"""The parent's side of a zygote: starts the process, asks it for children, notices when it is no longer well."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlm_core.sandbox.backends import Backend, Launch
from rlm_core.sandbox.child import Child
from rlm_core.sandbox.connection import Connection, Deadline, Outgrown
from rlm_core.sandbox.door import Door, admit, visitor
from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.interpreter import DEVICES, find_interpreter
from rlm_core.sandbox.limits import Limits

Role = Literal["code", "tests"]
"""What a zygote's children run: the code under examination, or test code, which reaches that code through a proxy."""

PACKAGES: dict[Role, tuple[str, ...]] = {
    "code": (),
    "tests": ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py"),
}
"""Installed packages that can be seen in the sandbox."""

_MAX_REPLY_BYTES = 1 << 16
_LAST_WORDS_S = 1.0
"""How long a process that has hung up may take to say why; a container's words come by way of the engine."""


class ZygoteFault(Exception):
    """The sandbox's own machinery failed: it could not start, died, hung, or answered nonsense. One line says which."""


@dataclass(frozen=True)
class End:
    """How a child ended."""

    status: int
    """Exit status, or minus the number of the signal that killed it."""
    cpu_s: float
    """CPU seconds, user and system, of all its threads."""
    memory_mb: float
    """Largest resident size, the interpreter included."""


class Zygote:
    """A running zygote. Not thread-safe; `Sandbox` holds the lock."""

    def __init__(self, backend: Backend, limits: Limits, hash_seed: int, role: Role = "code") -> None:
        """Start a zygote and wait until it is ready.

        Raises:
            ZygoteFault: it did not start.
        """
        self.limits = limits
        self._children: dict[int, Child] = {}
        launch = backend.launch(find_interpreter(PACKAGES[role]))
        self.polls_memory = launch.polls_memory
        """Whether a child's memory is for us to watch, because its kernel does not limit it."""
        self._real_pids: set[int] | None = set() if launch.real_pids else None
        try:
            self._process, stream = _start(launch, hash_seed, Deadline(limits.start_s))
        except OSError as error:
            raise ZygoteFault(f"cannot start {launch.command[0]}: {error.strerror or error}") from error
        self._control = Connection(stream, _MAX_REPLY_BYTES)
        end = launch.door.end if launch.door else None
        # Also when nobody calls `close`. Bound to this process, because a fork of it has a copy of this object.
        self._stop = weakref.finalize(self, _stop, self._process, self._control, os.getpid(), self._real_pids, end)
        self._pid = visitor(stream) if launch.door else self._process.pid
        try:
            self._hand_over(_rules(launch, limits, role))
        except BaseException:
            self.close()
            raise

    def _hand_over(self, rules: dict[str, Any]) -> None:
        """Give the zygote its rules, and on Linux a descriptor that tells it when this process is gone."""
        attach: list[int] = []
        if sys.platform == "linux":
            attach.append(os.pidfd_open(os.getpid()))
        try:
            self._ask(rules, {"ready": bool}, timeout_s=self.limits.start_s, attach=attach)
        finally:
            for descriptor in attach:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        """Process id of the zygote, or of the bubblewrap process around it."""
        return self._pid

    def fork(self, candidate: Child | None = None) -> Child:
        """Start a child, and wait until it has locked itself down.

        Args:
            candidate: the child with the code under examination, for one that runs test code. From here on the new
                child alone speaks to it.

        Raises:
            ZygoteFault: the zygote or the lockdown failed; no untrusted code has run yet.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            attach = [theirs.fileno(), *([candidate.connection.lend()] if candidate else [])]
            try:
                pid = self._ask({"do": "fork"}, {"pid": int}, attach=attach)["pid"]
            except BaseException:
                ours.close()
                raise
        if candidate is not None:
            candidate.connection.close()
        if pid <= 1:  # to the kernel that would mean whole groups of processes, some day when we kill it
            ours.close()
            raise ZygoteFault("the sandbox's zygote answered nonsense")
        child = Child(ours, pid, self.limits)
        self._children[pid] = child
        if self._real_pids is not None:
            self._real_pids.add(pid)
        greeting = child.greeting(Deadline(self.limits.zygote_s))
        if greeting != "locked":
            raise ZygoteFault(greeting)
        return child

    def end(self, child: Child) -> End:
        """Kill a child, whatever it is doing.

        Raises:
            ZygoteFault: the zygote failed.
        """
        child.connection.close()
        reply = self._ask({"do": "end", "pid": child.pid}, {"status": int, "cpu_s": float, "memory_mb": float})
        del self._children[child.pid]
        if self._real_pids is not None:
            self._real_pids.discard(child.pid)
        return End(**reply)

    def cpu_s(self, child: Child) -> float:
        """CPU seconds, user and system, that a child has used so far.

        Raises:
            ZygoteFault: the zygote failed.
            Outgrown: the child has more memory than it may, and nobody but us to say so.
        """
        reply = self._ask({"do": "look", "pid": child.pid}, {"cpu_s": float, "memory_mb": float})
        if self.polls_memory and reply["memory_mb"] > self.limits.memory_mb:
            raise Outgrown(f"it used more than {self.limits.memory_mb} MB of memory")
        return float(reply["cpu_s"])

    def end_all(self) -> None:
        """Kill the children that are left."""
        for child in list(self._children.values()):
            self.end(child)

    def close(self) -> None:
        """Kill the zygote and with it its children, without asking it. Does nothing the second time."""
        for child in self._children.values():
            child.connection.close()
        self._stop()

    def _ask(
        self,
        message: dict[str, Any],
        fields: dict[str, type],
        timeout_s: float | None = None,
        attach: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Send one message and return the reply, which must consist of these fields with values of these types."""
        deadline = Deadline(timeout_s or self.limits.zygote_s)
        try:
            self._control.send(wire.frame(message), deadline, attach)
            said = json.loads(self._control.receive(deadline))
        except TimeoutError:
            raise ZygoteFault("the sandbox's zygote does not answer") from None
        except OSError as error:
            raise ZygoteFault(f"the sandbox's zygote is gone: {_last_words(self._process) or error}") from error
        except (ValueError, RecursionError):
            raise ZygoteFault("the sandbox's zygote answered nonsense") from None
        if not isinstance(said, dict) or {name: type(value) for name, value in said.items()} != fields:
            raise ZygoteFault("the sandbox's zygote answered nonsense")
        return said


def _rules(launch: Launch, limits: Limits, role: Role) -> dict[str, Any]:
    """What the zygote has to know to prepare itself and to lock down its children: its first message."""
    return {
        "role": role,
        "owner": os.getpid(),
        "listable": [*launch.listable, *launch.packages],
        "readable": [*launch.readable, *launch.packages],
        "packages": launch.packages,
        "devices": DEVICES,
        "user": launch.user,
        "keep_read_access": launch.keep_read_access,
        "foreign": launch.foreign,
        "limits": limits.model_dump() | {"threads": limits.threads if launch.count_threads else None},
    }


def _start(launch: Launch, hash_seed: int, deadline: Deadline) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process of a zygote; also our end of its control socket."""
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
                raise ZygoteFault(f"the sandbox's zygote did not start: {_last_words(process)}")
            return process, stream
        except BaseException as error:
            _end_process(process, door.end)
            assert process.stderr is not None
            process.stderr.close()
            if isinstance(error, TimeoutError):
                raise ZygoteFault("the sandbox's zygote did not come in time; limits.start_s says how long") from error
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


def _last_words(process: subprocess.Popen[bytes]) -> str:
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


def _stop(
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
