"""How far a stage is, for whoever watches; and the place where a request to stop is noticed.

The stages report after every step. A listener (the terminal, a log) must be quick and must not raise. Because every
stage comes by here often, this is also where a request to stop and a time limit take effect: work in a thread cannot be
interrupted from outside. Where a step is long, or a stage waits, it comes by with `check`, of which no listener hears.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from rlm_core.errors import InfrastructureFault, Interrupted

_GRACE_S = 20.0
"""How long a stage may take to notice a request to stop before the process is ended."""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` items of a stage, with figures such as `tokens` or `passed`; so many as `found` says were
    finished before.

    Stages that work in shards report each shard under its own `part`; a watcher adds them up.
    """

    stage: str
    done: int
    total: int
    part: str = ""
    figures: dict[str, float] = field(default_factory=dict)


_LOOK_EVERY_S = 0.2

Listener = Callable[[Progress], None]

_listeners: list[Listener] = []
_stop = threading.Event()
_stoppable = 0
"""Blocks of `stopping_on_signals` that are open."""
_limits = threading.local()


def check(stage: str) -> None:
    """See whether a stage may go on, where it has nothing to report.

    Raises:
        Interrupted: a stop was asked for.
        InfrastructureFault: the time limit that this thread works under has passed.
    """
    _check_stop()
    limit = getattr(_limits, "current", None)
    if limit is not None and time.monotonic() > limit[0]:
        raise InfrastructureFault(f"{stage}: took longer than {limit[1]:g} s")


def _check_stop() -> None:
    if _stop.is_set():
        raise Interrupted("stopped on request; the next run continues from what was finished")


def report(stage: str, done: int, total: int, part: str = "", **figures: float) -> None:
    """Tell the listeners how far a stage is.

    Args:
        done, total: items; the total is more than 0.

    Raises:
        Interrupted, InfrastructureFault: as `check` does, and then nobody is told.
    """
    check(stage)
    for listener in list(_listeners):
        listener(Progress(stage, done, total, part, figures))


class ProgressMeter:
    """Turns a sampler's steps into progress reports with tokens and tokens per second."""

    def __init__(self, stage: str, total: int, part: str = ""):
        self._stage, self._total, self._part = stage, total, part
        self._finished = 0
        self._tokens = 0
        self._started = time.monotonic()

    def __call__(self, tokens: int, finished: int) -> None:
        self._tokens += tokens
        self._finished += finished
        seconds = time.monotonic() - self._started
        report(self._stage, self._finished, self._total, self._part, tokens=self._tokens, seconds=seconds)


def pause(seconds: float) -> None:
    """Wait.

    Raises:
        Interrupted: a stop was asked for.
    """
    deadline = time.monotonic() + seconds
    check("pause")
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_EVERY_S))  # not _stop.wait, which a signal's handler could deadlock with
        check("pause")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass every report to `listener` for the time of the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def time_limit(seconds: float) -> Iterator[Callable[[], float]]:
    """Let the work of this thread fail at its next report or check once `seconds` have passed.

    Yields:
        What tells for how many seconds the block has worked, as `in_turn` counts.
    """
    outer = getattr(_limits, "current", None)
    started, waited = time.monotonic(), _waited()
    own = (started + seconds, seconds)
    _limits.current = own if outer is None else min(own, outer)
    try:
        yield lambda: time.monotonic() - started - (_waited() - waited)
    finally:
        _limits.current = outer and (outer[0] + _waited() - waited, outer[1])


@contextmanager
def in_turn(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """Hold a lock for the time of the block. Waiting for it is no work of this thread: its time limit moves on.

    Raises:
        Interrupted: a stop was asked for by the time that its turn came.
    """
    started = time.monotonic()
    with lock:
        _check_stop()
        waited = time.monotonic() - started
        _limits.waited = _waited() + waited
        current = getattr(_limits, "current", None)
        if current is not None:
            _limits.current = (current[0] + waited, current[1])
        yield


def _waited() -> float:
    """Seconds that this thread has waited for its turn so far."""
    return float(getattr(_limits, "waited", 0.0))


@contextmanager
def stopped() -> Iterator[None]:
    """For the time of the block, every stage in this process stops at its next report or check."""
    _stop.set()
    try:
        yield
    finally:
        _stop.clear()


def _end_now(code: int) -> None:
    """End the process, from whichever thread, and say so: nobody else will."""
    words = f"\nrlm: stopped on request, in the middle of a step that took more than {_GRACE_S:g} s; "
    os.write(2, f"{words}the next run continues from what was finished\n".encode())
    os._exit(code)


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """For the time of the block, SIGINT and SIGTERM make the stages stop at their next report or check.

    A second signal, or a stage that does not notice the first for a while, ends the process at once; that is safe,
    because files are written whole or not at all. Outside the main thread the block changes nothing. A block within
    another one keeps a request that came before it.
    """
    global _stoppable
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _stoppable:
        _stop.clear()
    watchdogs: list[threading.Timer] = []

    def stop(number: int, _frame: Any) -> None:
        if _stop.is_set():
            os._exit(128 + number)
        _stop.set()
        watchdog = threading.Timer(_GRACE_S, _end_now, (128 + number,))
        watchdog.daemon = True
        watchdog.start()
        watchdogs.append(watchdog)

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    _stoppable += 1
    try:
        yield
    finally:
        _stoppable -= 1
        for watchdog in watchdogs:
            watchdog.cancel()
        for number, handler in earlier.items():
            signal.signal(number, handler)
