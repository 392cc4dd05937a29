"""The parent's side of the scorer: a process of its own for judging by libraries that have no time limit.

It runs no code that a model wrote; it is there to be stopped. A JSON Schema can ask for exponential work, and an answer
of `1e999999999` for a number of a billion digits, and a thread cannot be made to let go of either.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from rlm_core.errors import InfrastructureFault, ProblemError, one_line
from rlm_core.files import digest
from rlm_core.problems import JsonSchema, ReasoningGym
from rlm_core.records import Record, Share
from rlm_core.sandbox.connection import Connection, Deadline
from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.limits import Limits

_log = logging.getLogger(__name__)
_MODULE = "rlm_core.verifiers.scoring"
_ROOT = Path(__file__).resolve().parents[2]
_LARGEST_REPLY = 1 << 16
_ATTEMPTS = 2
_SLACK_S = 1.0
"""The kernel counts a process's CPU time in whole seconds."""

LibraryVerifier = JsonSchema | ReasoningGym
"""Verifiers that the scorer knows."""


class Score(Record):
    """What the scorer says about a text."""

    score: Share = 0.0
    reason: str = ""
    """What is wrong with it, for people; empty when nothing is."""
    late: bool = False
    """Whether the clock ran out, and not the CPU time."""


class Scorer:
    """The process, started when it is first needed. Serves one thread at a time."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._process: _Process | None = None

    def prepare(self, verifier: LibraryVerifier) -> None:
        """Get ready to score by this verifier. Done by `score`, too; by itself, a check of the verifier.

        Raises:
            ProblemError: the verifier is not usable: its schema is none, the data set does not exist …
            InfrastructureFault: the process does not start, or not in time.
        """
        key = _key(verifier)
        process = self._running()
        if key in process.prepared:
            return
        message = {"do": "prepare", "key": key, "verifier": verifier.model_dump(mode="json")}
        try:
            error = process.ask(message, self._limits.start_s)
        except (TimeoutError, OSError, ValueError) as trouble:
            self.close()
            raise InfrastructureFault(f"the scorer could not prepare a {verifier.kind} verifier: {trouble}") from None
        if error:
            raise ProblemError(str(error))
        process.prepared.add(key)

    def score(self, verifier: LibraryVerifier, text: str) -> Score:
        """Score a text. One that takes too long, or that makes the process crash twice, is worth nothing.

        Raises:
            ProblemError, InfrastructureFault: as `prepare`.
        """
        for _ in range(_ATTEMPTS):
            self.prepare(verifier)
            try:
                reply = self._running().ask({"do": "score", "key": _key(verifier), "text": text}, self._patience_s)
                return Score.model_validate(reply)
            except TimeoutError:
                self.close()
                return Score(reason="it took too long to judge", late=True)
            except (OSError, ValueError, ValidationError) as error:
                status = self.close()
                if status == -signal.SIGXCPU:
                    return Score(reason="it took too long to judge")
                _log.warning("the scorer ended with %d: %s", status, one_line(error))
        return Score(reason="judging it crashed, twice")

    def close(self) -> int:
        """End the process, if there is one; its exit status, or minus the number of the signal that ended it."""
        process, self._process = self._process, None
        return process.end() if process else 0

    @property
    def _patience_s(self) -> float:
        """Seconds on the clock for one text: the limit itself is on CPU time, as in the sandbox."""
        return self._limits.patience * self._limits.case_s + _SLACK_S

    def _running(self) -> "_Process":
        if self._process is None:
            self._process = _Process(self._limits)
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Process:
    """A running scorer."""

    def __init__(self, limits: Limits) -> None:
        self.prepared: set[str] = set()
        """Keys of the verifiers that it has been given."""
        stream, remote = socket.socketpair()
        self._connection = Connection(stream, _LARGEST_REPLY)
        try:
            with remote:
                self._process = _start(remote.fileno())
        except OSError as error:
            self._connection.close()
            raise InfrastructureFault(f"the scorer cannot be started: {error.strerror}") from error
        self._stop = weakref.finalize(self, _stop, self._process, self._connection, os.getpid())
        try:
            self.ask({"cpu_s": limits.case_s, "memory_mb": limits.memory_mb, "depth": limits.depth}, limits.start_s)
        except (TimeoutError, OSError, ValueError) as error:
            self.end()
            raise InfrastructureFault("the scorer does not start") from error

    def ask(self, message: dict[str, Any], timeout_s: float) -> Any:
        """Send a message and return the reply.

        Raises:
            TimeoutError: there was none in time.
            OSError: the process is gone.
            ValueError: the reply is none.
        """
        deadline = Deadline(timeout_s)
        self._connection.send(wire.frame(message), deadline)
        return json.loads(self._connection.receive(deadline))

    def end(self) -> int:
        """Kill it, unless it has ended; how it ended."""
        # What it was killed by shows only when it has had the time to die of it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.1)
        self._stop()
        return int(self._process.returncode or 0)


def _key(verifier: LibraryVerifier) -> str:
    return digest(verifier.model_dump(mode="json"))


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    # One thread: what it does is small, and each one would reserve address space that the memory limit counts.
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    paths: Sequence[str] = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, str(descriptor)],
        env=os.environ | single | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,  # a Ctrl-C is for the parent, which ends this when it is ready to
    )


def _stop(process: subprocess.Popen[bytes], connection: Connection, creator: int) -> None:
    """Kill the process and release everything. Called once."""
    connection.close()
    if os.getpid() == creator:
        process.kill()
        process.wait()
