"""Commands that `rlm up` keeps going: started, looked after, started again when they die, ended with the block."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlm_core.errors import InfrastructureFault, one_line

_END_S = 20.0
_LOOK_EVERY_S = 0.1
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_STEADY_S = 120.0
"""What has worked for so long is started again as if it had never died."""


@dataclass(frozen=True)
class Service:
    """A command that goes on, and how it is known that it works."""

    name: str
    """As people are told it."""
    command: Sequence[str]
    log: Path
    works: Callable[[], bool]
    patience_s: float
    """How long it may take until it works for the first time."""


class Services:
    """What was started, in the order in which it was started."""

    def __init__(self, environment: dict[str, str], say: Callable[[str], None]):
        self._environment = environment
        self._say = say
        self._watched: list[_Watched] = []

    @contextmanager
    def running(self, service: Service) -> Iterator[None]:
        """Start a service and wait until it works; it is ended with the block.

        Raises:
            InfrastructureFault: it ended, or takes too long; the message has its last words.
        """
        watched = _Watched(service, self._environment)
        try:
            watched.wait_until_it_works()
            self._watched.append(watched)
            yield
        finally:
            watched.end()

    def look_after(self) -> None:
        """Start again what has died, each time after a longer pause; to be called again and again."""
        for watched in self._watched:
            if told := watched.look():
                self._say(told)

    def all_work(self) -> bool:
        return all(watched.is_alive() for watched in self._watched)


class _Watched:
    """A service's process, and the next one when it dies; each in a session of its own, where Ctrl-C does not reach."""

    def __init__(self, service: Service, environment: dict[str, str]):
        self._service = service
        self._environment = environment
        self._pause_s = _FIRST_PAUSE_S
        self._start_at: float | None = None
        """When it is started again; None while it is alive."""
        self._process = self._spawned("wb")

    def _spawned(self, mode: str) -> subprocess.Popen[bytes]:
        self._started = time.monotonic()
        with self._service.log.open(mode) as log:
            return subprocess.Popen(
                self._service.command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_it_works(self) -> None:
        service = self._service
        wait_until_it_works(service.name, service.works, self._process, service.patience_s, self._log)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def look(self) -> str | None:
        """What people should know of what was found, if anything."""
        if self.is_alive():
            return None
        now = time.monotonic()
        if self._start_at is None:
            if now > self._started + _STEADY_S:
                self._pause_s = _FIRST_PAUSE_S
            self._start_at = now + self._pause_s
            ended = f"{self._service.name} ended by itself with code {self._process.returncode}"
            return f"{ended} and is started again in {self._pause_s:g} s: {_last(self._log())}"
        if now >= self._start_at:
            self._start_at = None
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._process = self._spawned("ab")
        return None

    def _log(self) -> str:
        return self._service.log.read_text(errors="replace")

    def end(self) -> None:
        end_process(self._process, _END_S)


def end_process(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Ask a process to end, and kill it when it does not within so many seconds."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_it_works(
    name: str, works: Callable[[], bool], process: subprocess.Popen[bytes], patience_s: float, words: Callable[[], str]
) -> None:
    """Wait for what a process that was just started offers.

    Args:
        words: what the process has said.

    Raises:
        InfrastructureFault: it ended, or takes too long.
    """
    deadline = time.monotonic() + patience_s
    while not works():
        if process.poll() is not None:
            raise InfrastructureFault(f"{name} ended while starting: {_last(words())}")
        if time.monotonic() > deadline:
            raise InfrastructureFault(f"{name} was not ready within {patience_s:g} s")
        time.sleep(_LOOK_EVERY_S)


def _last(words: str) -> str:
    return one_line(words)[-300:] or "no reason given"
