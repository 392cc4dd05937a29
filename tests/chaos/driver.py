"""Runs one iteration in a process of its own and kills it with -9 where it is told to.

    python -m tests.chaos.driver CONFIG NOTES [time:SECONDS | write:NUMBER | report:STAGE | signals:STAGE:NUMBERS]

`time` counts from when the iteration has its directory. `write` is before, within or after the so-manieth flush, rename
or commit of a file. `signals` are others than kill -9, one after the other, such as 2,2. NOTES gets a JSON line for
each thing that happened.
"""

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import flows.iterate
from rlm_core import progress
from rlm_core.errors import RlmError
from rlm_core.iteration import begin
from rlm_core.progress import Progress


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
        self.writes = 0

    def begun(self) -> None:
        if self._kind == "time":
            threading.Timer(float(self._when), self._kill).start()

    def write(self) -> None:
        with self._lock:
            self.writes += 1
            if self._kind == "write" and self.writes == int(self._when):
                self._kill()

    def report(self, stage: str) -> None:
        if (self._kind, self._when) == ("report", stage):
            self._kill()
        if self._kind == "signals" and self._when.startswith(f"{stage}:"):
            for number in self._when.partition(":")[2].split(","):
                os.kill(os.getpid(), int(number))
                time.sleep(0.2)  # two of a kind at the same time would be one

    @staticmethod
    def _kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def count_writes(killer: Killer) -> None:
    """Let the killer know before each flush and rename of a file, and after."""

    def around(call: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            killer.write()
            result = call(*args, **kwargs)
            killer.write()
            return result

        return counted

    os.fsync = around(os.fsync)
    Path.replace = around(Path.replace)  # type: ignore[method-assign]
    connect = sqlite3.connect

    class Connection(sqlite3.Connection):
        def __exit__(self, *args: Any) -> Any:
            return around(super().__exit__)(*args)

    sqlite3.connect = lambda *args, **kwargs: connect(*args, **{"factory": Connection, **kwargs})


def main() -> None:
    config, notes, killer = sys.argv[1], Notes(Path(sys.argv[2])), Killer((sys.argv[3:] or ["never"])[0])

    def begin_and_say(*args: Any) -> Any:
        iteration = begin(*args)
        notes.add("begun")
        count_writes(killer)
        killer.begun()
        return iteration

    def listen(report: Progress) -> None:
        if "found" not in report.figures:
            notes.add("report", stage=report.stage, part=report.part, done=report.done, total=report.total)
        if report.done:
            killer.report(report.stage)

    started = time.monotonic()
    try:
        with mock.patch("flows.iterate.begin", begin_and_say), progress.listening(listen):
            result = flows.iterate.iterate(config)
    except RlmError as error:
        sys.exit(error.exit_code)
    notes.add("ended", seconds=time.monotonic() - started, writes=killer.writes, decision=result["decision"])


if __name__ == "__main__":
    main()
