"""The parent's side of a zygote: starts the process, asks it for children, notices when it is no longer well."""

import json
import os
import socket
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlm_core.sandbox import process
from rlm_core.sandbox.backends import Backend, Launch
from rlm_core.sandbox.child import Child
from rlm_core.sandbox.connection import Connection, Deadline, Outgrown
from rlm_core.sandbox.door import visitor
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
            self._process, stream = process.start(launch, hash_seed, Deadline(limits.start_s))
        except OSError as error:
            raise ZygoteFault(f"cannot start {launch.command[0]}: {error.strerror or error}") from error
        except process.NotStarted as error:
            raise ZygoteFault(str(error)) from error
        self._control = Connection(stream, _MAX_REPLY_BYTES)
        end = launch.door.end if launch.door else None
        # Also when nobody calls `close`. Bound to this process, because a fork of it has a copy of this object.
        self._stop = weakref.finalize(
            self, process.stop, self._process, self._control, os.getpid(), self._real_pids, end
        )
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
            raise ZygoteFault(f"the sandbox's zygote is gone: {process.last_words(self._process) or error}") from error
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
