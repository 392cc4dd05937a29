"""What an iteration that is killed somewhere must have in common with one that is not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.settings import get_current_settings

from rlm_core.config_file import load_config
from rlm_core.errors import Interrupted
from rlm_core.iteration import begin
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("RLM_CHAOS_SEED", "0")) or random.randrange(1, 10**6)
"""Which random moments."""
_OF_LIBRARIES = ("mlx", "wandb-media", "wandb-artifacts")
"""Temporary directories that are not ours: MLX's kernels; what wandb makes when it is imported, which mlx-lm does."""
TOO_LATE = "it had ended before"
"""What comes of a moment that an iteration did not get to."""
_MEASURED = {"duration_s", "sampling_s", "path"}
"""Parts of a record that differ from run to run, or from place to place."""


@dataclass(frozen=True)
class Run:
    """How a process that ran an iteration ended, and what it noted."""

    code: int
    errors: str
    notes: list[dict[str, Any]]

    @property
    def ended(self) -> dict[str, Any]:
        """The last note of an iteration that came to its end."""
        assert self.code == 0, self.errors
        return self.notes[-1]

    @property
    def finished(self) -> set[str]:
        """The work that was done from beginning to end: shards, exams, calls of the model, optimizer steps.

        An exam's answers and their judging are one, as are an exam of two policies of the same name.
        """
        return set(self._finished())

    def _finished(self) -> Iterator[str]:
        for note in self.notes:
            if note["what"] == "report" and note["done"]:
                if note["stage"] == "train":
                    yield f"train step {note['done']}"
                elif note["done"] == note["total"] and note["stage"] != "evaluate":
                    yield f"{note['stage']} {note['part']}"


def run_iteration(config: Path, moment: str = "never", timeout_s: float = 300) -> Run:
    """Run an iteration in a process of its own, with its temporary files in a directory that only it has."""
    notes = config.with_name("notes.jsonl")
    notes.unlink(missing_ok=True)
    scratch = scratch_of(config)
    scratch.mkdir(exist_ok=True)
    settings = get_current_settings().to_environment_variables(exclude_unset=True)  # above all, which server
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.driver", str(config), str(notes), moment],
        cwd=ROOT,
        env={**os.environ, **settings, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    lines = notes.read_text().splitlines() if notes.exists() else []
    return Run(done.returncode, done.stderr, [json.loads(line) for line in lines])


def scratch_of(config: Path) -> Path:
    return config.with_name("scratch")


def outcome(project: Project, iteration: int = 1) -> dict[str, Any]:
    """What must not depend on what happened on the way: adapter, exams, decision."""
    run = project.run(iteration)
    content = {path.name: json.loads(path.read_text()) for path in sorted((run / "exams").glob("*.json"))}
    content["decision"] = json.loads((run / "decision.json").read_text())
    lasting: dict[str, Any] = without_measured(content)
    return lasting


def without_measured(content: Any) -> Any:
    match content:
        case dict():
            return {key: without_measured(value) for key, value in content.items() if key not in _MEASURED}
        case list():
            return [without_measured(item) for item in content]
    return content


def left_over(config: Path) -> list[str]:
    """Files, and after a moment of patience processes, that should not be there any more."""
    return [*left_by_processes(scratch_of(config)), *partial_files(project_of(config))]


def left_by_processes(scratch: Path, patience_s: float = 20) -> list[str]:
    """Command lines of processes whose directory of temporary files this is, and what is in it."""
    deadline = time.monotonic() + patience_s
    while (running := processes_with(f"TMPDIR={scratch}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [*running, *(str(path) for path in scratch.iterdir() if not path.name.endswith(_OF_LIBRARIES))]


def partial_files(project: Project) -> list[str]:
    """What a writer that was killed would leave in a project."""
    left = (path for path in project.root.rglob("*") if path.name.startswith(".") or path.name.endswith("-journal"))
    return [str(path) for path in left]


def processes_with(variable: str) -> list[str]:
    """Command lines of the processes that have this in their environment."""
    return list(ids_with(variable).values())


def ids_with(variable: str) -> dict[int, str]:
    """Ids and command lines of the processes that have this in their environment."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(process.name)] = line
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class Victim:
    """An iteration of a project, what it comes to when nothing happens to it, and where the project was before it."""

    config: Path
    number: int
    before: Path | None
    """A copy of the project; None for the first iteration, when there was none."""
    straight: Run
    expected: dict[str, Any]

    @classmethod
    def of(cls, config: Path, iterations: int = 1) -> "Victim":
        """The last of so many iterations."""
        project = project_of(config)
        shutil.rmtree(project.root, ignore_errors=True)
        before = None
        for number in range(1, iterations + 1):
            if number > 1:
                before = config.with_name(f"before-{number}")
                shutil.copytree(project.root, before)
            straight = run_iteration(config)
            assert straight.ended
        assert next_iteration(project.ledger) == iterations + 1
        assert left_over(config) == []
        return cls(config, iterations, before, straight, outcome(project, iterations))

    @property
    def project(self) -> Project:
        return project_of(self.config)

    def assert_survives(self, moment: str) -> str:
        """Run the iteration and kill it at this moment, start it again, and see that it ends like one that was not.

        Returns:
            What happened, in a few words.
        """
        shutil.rmtree(self.project.root, ignore_errors=True)
        if self.before:
            shutil.copytree(self.before, self.project.root)
        killed = run_iteration(self.config, moment)
        if killed.code == 0:  # the machine was quicker this time
            return TOO_LATE
        assert killed.code == _code_of(moment), (moment, killed.code, killed.errors)
        if self.decided():
            self._assert_nothing_is_left(moment)
            return "killed after the decision"
        resumed = run_iteration(self.config)
        assert resumed.code == 0, (moment, resumed.errors)
        again = sorted(killed.finished & resumed.finished)
        assert len(again) <= 1, (moment, again)
        self._assert_nothing_is_left(moment)
        return (
            f"survived, did {len(killed.finished)} and then {len(resumed.finished)} pieces of work, {len(again)} twice"
        )

    def decided(self) -> bool:
        """Whether the iteration was committed: then the next run is the next iteration."""
        return next_iteration(self.project.ledger) == self.number + 1

    def _assert_nothing_is_left(self, moment: str) -> None:
        """The iteration ended as expected; once the next one has begun, an accept is backed up and the rest gone."""
        with self.project.held():
            begin(load_config(self.config))
        assert outcome(self.project, self.number) == self.expected, moment
        if self.expected["decision"]["outcome"] == "accepted":
            assert next_iteration(self.project.ledger_backup) == self.number + 1, moment
        assert not (left := left_over(self.config)), (moment, left)


def project_of(config: Path) -> Project:
    return Project(config.with_name("project"))


def next_iteration(ledger: Path) -> int | None:
    """The number of the iteration that comes next by this ledger; None when there is none."""
    if not ledger.exists():
        return None
    with open_ledger(ledger) as opened:
        return opened.next_iteration()


def _code_of(moment: str) -> int:
    """How a process ends that is killed then. Asked to stop it does so at its next report, and asked twice at once."""
    kind, _, details = moment.partition(":")
    if kind != "signals":
        return -signal.SIGKILL
    numbers = details.partition(":")[2].split(",")
    return 128 + int(numbers[-1]) if len(numbers) > 1 else Interrupted.exit_code
