"""A verify task to which something happens, once, in the process of a cluster that has the shard."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rlm_core import verify as core
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault
from rlm_core.records import StageResult
from rlm_core.sandbox import open_sandbox
from tasks.stage import Result, results_of, stage_task


def verify_with(event: Callable[[str, Path], None]) -> Any:
    """The verify task, but that `event` is called with the shard's name and a place for notes before it works."""

    @stage_task(version=1, description="A shard's answers run against their cases in a sandbox.", reads=["verify"])
    def verify(directory: str, problems: Result, source: str, rollouts: Result, section: VerifySection) -> StageResult:
        asked = results_of(problems, directory).files[source]
        answers = results_of(rollouts, directory).files["rollouts"]
        shard = Path(answers.path).stem
        notes = Path(directory).parent / f"notes-{shard}"
        with notes.open("a") as file:
            file.write(f"{os.getpid()} {section.workers}\n")
        if len(notes.read_text().splitlines()) == 1:
            event(shard, notes.with_name("sandbox"))
        return core.run(Path(directory), asked, answers, section)

    return verify


def open_a_sandbox(note: Path) -> Any:
    """A sandbox that nobody closes, and a note with the id of its process."""
    sandbox = open_sandbox()
    note.write_text(str(sandbox._zygotes.code.pid))
    return sandbox


def killed_or_faulty(shard: str, note: Path) -> None:
    if shard == "000":
        _left_open = open_a_sandbox(note)
        os.kill(os.getpid(), signal.SIGKILL)
    if shard == "001":
        raise InfrastructureFault("injected")


def asleep(_shard: str, note: Path) -> None:
    _left_open = open_a_sandbox(note)
    time.sleep(100)


def main() -> None:
    """`rlm run` with a verification that sleeps."""
    from rlm_cli.main import main as rlm

    sys.argv = ["rlm", "run", "--config", sys.argv[1]]
    with mock.patch("flows.stages.verify", verify_with(asleep)):
        rlm()
