"""`rlm run` stopped in the middle of each stage, by Ctrl-C and by kill -9: one clear line, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlm_core.state.ledger import open_ledger
from tests.conftest import MakeConfig

# Runs the command with a stage held up at its first report, so that the signal finds it there.
_HELD_UP = """
import sys, time
from rlm_core import progress
stage = sys.argv[1]
def hold(report):
    if report.stage == stage and not held:
        held.append(1)
        print("HELD", flush=True)
        time.sleep(3)
held = []
progress._listeners.append(hold)
sys.argv = ["rlm", "run", "--config", sys.argv[2]]
from rlm_cli.main import main
main()
"""


def environment(config: Path) -> dict[str, str]:
    """With Prefect's files in one place for all projects of this session, not in the person's home."""
    return {**os.environ, "PREFECT_HOME": str(config.parents[1] / "prefect"), "PYTHONUNBUFFERED": "1"}


def start(stage: str, config: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HELD_UP, stage, str(config)]
    # In a session of its own, so that a signal can reach the whole group, as Ctrl-C in a terminal does.
    return subprocess.Popen(
        command,
        start_new_session=True,
        env=environment(config),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def signalled_in(stage: str, config: Path, number: int) -> tuple[int, str]:
    """Start an iteration, send a signal when it is in a stage; its exit code and what it wrote to stderr."""
    process = start(stage, config)
    assert process.stdout is not None
    assert any(line.startswith("HELD") for line in process.stdout), process.communicate()[1]
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def finish(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlm_cli.main", "run", "--config", str(config)]
    return subprocess.run(command, env=environment(config), capture_output=True, text=True, timeout=120, check=False)


def assert_nothing_half_written(project: Path) -> None:
    assert [path for path in project.rglob(".*") if path.is_file()] == []


@pytest.mark.parametrize("stage", ["generate", "mutate", "rollout", "verify", "train", "evaluate", "evaluate_verify"])
def test_ctrl_c_in_a_stage_is_one_line_and_the_next_run_finishes_the_same_iteration(
    make_config: MakeConfig, tmp_path: Path, stage: str
) -> None:
    config = make_config()
    code, errors = signalled_in(stage, config, signal.SIGINT)
    assert code == 130
    assert [line for line in errors.splitlines() if line.startswith("rlm:")] == [
        "rlm: stopped on request; the next run continues from what was finished"
    ]
    assert "Traceback" not in errors
    assert_nothing_half_written(tmp_path / "project")
    with open_ledger(tmp_path / "project" / "ledger.sqlite") as ledger:
        assert ledger.next_iteration() == 1
    done = finish(config)
    assert done.returncode == 0, done.stderr
    with open_ledger(tmp_path / "project" / "ledger.sqlite") as ledger:
        assert [entry.number for entry in ledger.history()] == [1]


def test_kill_9_frees_the_project_and_leaves_no_process(make_config: MakeConfig) -> None:
    config = make_config()
    code, _ = signalled_in("verify", config, signal.SIGKILL)
    assert code == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while _left_over(config) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _left_over(config) == []
    done = finish(config)
    assert done.returncode == 0, done.stderr


def _left_over(config: Path) -> list[str]:
    """Command lines of sandboxes, and of processes with this session's environment such as Prefect's server."""
    mark = f"PREFECT_HOME={config.parents[1] / 'prefect'}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            ours = mark in (process / "environ").read_bytes().split(b"\0")
            if ours or (b"-m" in command and b"inside" in command):
                found.append(b" ".join(command).decode(errors="replace"))
        except OSError:
            continue
    return found
