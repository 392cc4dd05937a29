"""What the trackers' own libraries keep of an iteration, in files or a local store; skipped where one is missing."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlm_core.state.project import Project
from tests.samples.ended import LOSSES, write_run

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose third iteration has ended."""
    made = Project(tmp_path / "quick")
    write_run(made, 3)
    return made.root


def send(name: str, project: Path, look: str, **environment: str) -> Any:
    """Tell the tracker in a process of its own, as these libraries stay at work; what `look`, run after it, prints."""
    if find_spec(name) is None:
        pytest.skip(f"the extra {name} is not installed")
    script = (
        "import sys\nfrom pathlib import Path\nfrom rlm_core.trackers import tell_trackers\n"
        f"tell_trackers([{name!r}], Path(sys.argv[1]), 3, sys.exit)\n{look}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(project)],
        cwd=project.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()  # the library itself writes nothing between the lines of `rlm run`
    return json.loads(line)


def test_mlflow_has_each_step_and_the_iteration(project: Path) -> None:
    look = """
import json
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=f"sqlite:///{sys.argv[1]}/mlflow.sqlite")
[run] = client.search_runs([client.get_experiment_by_name("quick").experiment_id])
losses = [point.value for point in client.get_metric_history(run.info.run_id, "train/loss")]
print(json.dumps([run.info.run_name, run.data.params["seed"], losses, run.data.metrics["benchmark/candidate"]]))
"""
    assert send("mlflow", project, look) == ["iteration 3", "7", LOSSES, 0.4]


def test_wandb_writes_a_run_for_later(project: Path, tmp_path: Path) -> None:
    """Its file is binary, and whole when the process has ended; that the figures are in it is seen by their names."""
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    send("wandb", project, "print(0)", WANDB_MODE="offline", **home)
    [file] = (project / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for name in ("train/loss", "benchmark/candidate", "iteration 3"):
        assert name.encode() in content


def test_trackio_has_each_step_and_the_iteration(project: Path, tmp_path: Path) -> None:
    look = """
import json, sqlite3
[file] = Path(sys.argv[2] if len(sys.argv) > 2 else "trackio").glob("quick*.db")
rows = [json.loads(row) for (row,) in sqlite3.connect(file).execute("SELECT metrics FROM metrics ORDER BY step")]
print(json.dumps([[row["train/loss"] for row in rows[:2]], rows[-1]["benchmark/candidate"]]))
"""
    assert send("trackio", project, look, TRACKIO_DIR=str(tmp_path / "trackio")) == [LOSSES, 0.4]
