"""A sandbox: its zygotes, kept alive over many jobs, one job at a time."""

import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from rlm_core.errors import InfrastructureFault, SandboxUnavailable
from rlm_core.sandbox.backends import BACKENDS, Backend, every_backend
from rlm_core.sandbox.connection import Deadline
from rlm_core.sandbox.container import Container
from rlm_core.sandbox.limits import Limits
from rlm_core.sandbox.zygote import Role, Zygote, ZygoteFault

T = TypeVar("T")
_ATTEMPTS = 2
_log = logging.getLogger(__name__)


class Zygotes:
    """The running zygotes of one sandbox, each started when it is first asked for."""

    def __init__(self, start: Callable[[Role], Zygote]) -> None:
        self._start = start
        self._running: dict[Role, Zygote] = {}

    def __getitem__(self, role: Role) -> Zygote:
        if role not in self._running:
            self._running[role] = self._start(role)
        return self._running[role]

    @property
    def code(self) -> Zygote:
        """For the code under examination."""
        return self["code"]

    @property
    def tests(self) -> Zygote:
        """For test code."""
        return self["tests"]

    def end_all(self) -> None:
        """Kill all children."""
        for zygote in self._running.values():
            zygote.end_all()

    def close(self) -> None:
        """Kill the zygotes themselves; the next that is asked for is a new one."""
        while self._running:
            self._running.popitem()[1].close()


class Sandbox:
    """Runs jobs of untrusted code. Open it with `open_sandbox`, close it or use it as a context manager.

    One object serves one job at a time and makes other threads wait; threads that should not wait have one each.
    """

    def __init__(self, backend: Backend, limits: Limits, hash_seed: int) -> None:
        """Start it, and see for ourselves that it holds.

        Raises:
            SandboxUnavailable: it cannot be had here; one line says what to do.
        """
        self.name = backend.title
        """Name in verdicts: the layers that hold the code."""
        self.limits = limits
        self._zygotes = Zygotes(lambda role: Zygote(backend, limits, hash_seed, role))
        self._lock = threading.Lock()
        self._creator = os.getpid()
        self._closed = False
        try:
            self._zygotes.code  # noqa: B018  started once, not twice: what fails now will fail again
            self.run(_check_that_it_holds)
        except (ZygoteFault, InfrastructureFault) as fault:
            self.close()
            raise SandboxUnavailable("; ".join(filter(None, (str(fault), backend.advice)))) from fault

    def run(self, job: Callable[[Zygotes], T]) -> T:
        """Run a job, which gets the zygotes to fork children from; children that it leaves are killed.

        A zygote that fails is replaced and the job run once more, from its beginning.

        Raises:
            InfrastructureFault: it failed again. This says nothing about the code that was to be run.
        """
        assert os.getpid() == self._creator, "a sandbox belongs to the process that opened it"
        with self._lock:
            assert not self._closed, "this sandbox is closed"
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return self._run_once(job)
                except ZygoteFault as fault:
                    if attempt == _ATTEMPTS:
                        raise InfrastructureFault(f"{self.name}: {fault}") from fault
                    _log.warning("%s: started anew, and what ran in it is run again: %s", self.name, fault)
            raise AssertionError("unreachable")

    def _run_once(self, job: Callable[[Zygotes], T]) -> T:
        try:
            result = job(self._zygotes)
            self._zygotes.end_all()
        except BaseException:
            # Also after an interrupt: a reply that nobody took would be taken for the answer to the next request.
            self._zygotes.close()
            raise
        return result

    def close(self) -> None:
        """End every process of the sandbox. Does nothing the second time."""
        with self._lock:
            self._closed = True
            self._zygotes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _check_that_it_holds(zygotes: Zygotes) -> None:
    zygote = zygotes.code
    child = zygote.fork()
    reply = child.ask("probe", Deadline(zygote.limits.zygote_s))
    zygote.end(child)
    if reply.kind != "probed":
        raise ZygoteFault(f"its check ended as {reply.kind}")
    if reply.payload != []:
        raise ZygoteFault(f"inside it, {', '.join(map(str, reply.payload))} is possible")


def open_sandbox(
    name: str = "auto", limits: Limits | None = None, hash_seed: int = 0, container: Container | None = None
) -> Sandbox:
    """Open a sandbox.

    Args:
        name: one of the names that `available` lists, or "auto" for the strongest of `AUTOMATIC` that works here.
        limits: what untrusted code may use; defaults to `Limits()`.
        hash_seed: PYTHONHASHSEED inside, 0 to 4294967295. Code whose result depends on it is not deterministic.
        container: what "docker" runs in; defaults to `Container()`.

    Raises:
        SandboxUnavailable: it cannot be had; one line says what to install. Nothing weaker is used in its place.
    """
    known = every_backend(container or Container())
    chosen = BACKENDS if name == "auto" else [backend for backend in known if backend.name == name]
    if not chosen:
        names = ", ".join(backend.name for backend in known)
        raise SandboxUnavailable(f"there is no sandbox called {name!r}; there are: auto, {names}")
    reasons = []
    for backend in chosen:
        reason = backend.missing()
        try:
            if reason is None:
                return Sandbox(backend, limits or Limits(), hash_seed)
        except SandboxUnavailable as error:
            reason = str(error)
        reasons.append(f"the {backend.name} sandbox cannot be had here: {reason}")
    raise SandboxUnavailable("; ".join(reasons))


AUTOMATIC = tuple(backend.name for backend in BACKENDS)
"""Names of the sandboxes that "auto" chooses from, strongest first."""


def available(container: Container | None = None) -> list[tuple[str, str | None]]:
    """Every sandbox by name, strongest first, each with the reason why it cannot be had on this machine or None.

    Those that "auto" never chooses come last. It opens each of them to find out, which takes a fraction of a second,
    and a second or two for a container.
    """
    found: list[tuple[str, str | None]] = []
    for backend in every_backend(container or Container()):
        try:
            open_sandbox(backend.name, container=container).close()
            found.append((backend.name, None))
        except SandboxUnavailable as error:
            found.append((backend.name, str(error)))
    return found
