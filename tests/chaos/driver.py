"""Runs one iteration in a process of its own and kills it with -9 where it is told to.

    python -m tests.chaos.driver CONFIG NOTES [MOMENT]

MOMENT is one of these. A write is the flush or rename of a file, or a commit of SQLite's; each counts twice, before it
and after. Clock and counting start when the project is held and nothing of the iteration is there.

    time:SECONDS          so long after that start
    write:NUMBER          at the so-manieth of all writes
    decision:NUMBER       the same, counted from the renaming of decision.json: 1 is just before it, 2 just after
    report:STAGE          in the middle of a stage, or of the first of its parts that gets so far
    signals:STAGE:NUMBERS there too, but signals other than kill -9, one after the other, such as 2,2

NOTES gets a JSON line for each thing that happened.
"""

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import flows.iterate
from rlm_core import progress
from rlm_core.errors import RlmError
from rlm_core.iteration import begin
from rlm_core.progress import Progress
from rlm_core.state.run import Run

_DECISION = Run(Path()).decision.name


class Notes:
    """What happened, for whoever started the process; it outlives it."""

    def __init__(self, path: Path):
        self._file = path.open("a")

    def add(self, what: str, **details: Any) -> None:
        self._file.write(json.dumps({"what": what, **details}) + "\n")
        self._file.flush()


class Killer:
    """Kills this process at the moment that was asked for."""

    def __init__(self, moment: str):
        self._kind, _, self._when = moment.partition(":")
        self._lock = threading.Lock()
        self._signalled = False
        self.writes = 0
        self.decision_writes = 0
        """Those since the decision was about to be renamed, itself included."""

    def start_clock(self) -> None:
        if self._kind == "time":
            timer = threading.Timer(float(self._when), self._kill)
            timer.daemon = True
            timer.start()

    def write(self, name: str) -> None:
        with self._lock:
            self.writes += 1
            self.decision_writes += name == _DECISION or self.decision_writes > 0
            if (self._kind, self._when) in (("write", str(self.writes)), ("decision", str(self.decision_writes))):
                self._kill()

    def report(self, report: Progress) -> None:
        if not report.done or report.done < report.total / 2:
            return
        if (self._kind, self._when) == ("report", report.stage):
            self._kill()
        if self._kind == "signals" and self._when.startswith(f"{report.stage}:") and not self._signalled:
            self._signalled = True
            for number in self._when.partition(":")[2].split(","):
                os.kill(os.getpid(), int(number))
                time.sleep(0.2)  # two of a kind at the same time would be one

    @staticmethod
    def _kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def count_writes(killer: Killer) -> None:
    """Let the killer know before each flush and rename of a file and each commit, and after."""

    def around(call: Any, name_of: Callable[..., str] = lambda *_: "") -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            name = name_of(*args)
            killer.write(name)
            result = call(*args, **kwargs)
            killer.write(name)
            return result

        return counted

    os.fsync = around(os.fsync)
    Path.replace = around(Path.replace, lambda _, target: Path(target).name)  # type: ignore[method-assign]
    connect = sqlite3.connect

    class Connection(sqlite3.Connection):
        def __exit__(self, *args: Any) -> Any:
            return around(super().__exit__)(*args)

    sqlite3.connect = lambda *args, **kwargs: connect(*args, **{"factory": Connection, **kwargs})


def main() -> None:
    config, notes, killer = sys.argv[1], Notes(Path(sys.argv[2])), Killer((sys.argv[3:] or ["never"])[0])

    started = time.monotonic()

    def begin_under_fire(*args: Any) -> Any:
        nonlocal started
        started = time.monotonic()
        count_writes(killer)
        killer.start_clock()
        return begin(*args)

    def listen(report: Progress) -> None:
        if "found" not in report.figures:
            notes.add("report", stage=report.stage, part=report.part, done=report.done, total=report.total)
            killer.report(report)

    try:
        with mock.patch("flows.iterate.begin", begin_under_fire), progress.listening(listen):
            result = flows.iterate.iterate(config)
    except RlmError as error:
        sys.exit(error.exit_code)
    notes.add(
        "ended",
        seconds=time.monotonic() - started,
        writes=killer.writes,
        decision_writes=killer.decision_writes,
        decision=result["decision"],
    )


if __name__ == "__main__":
    main()
