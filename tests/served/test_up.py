"""`rlm up`: everything on one machine by one command, and nothing of it afterwards."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rlm_core.project import Project
from tests.conftest import MakeConfig
from tests.served.machine import ROOT, Machine, free_port, wait_for

pytestmark = pytest.mark.timeout(600)


def left_of(home: Path) -> list[str]:
    """Command lines of processes whose Prefect has its home there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"PREFECT_HOME={home}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_up_serves_the_deployments_until_it_is_told_to_end(
    tmp_path: Path, make_config: MakeConfig, number: signal.Signals
) -> None:
    """Parity row 28: what is at work then is cancelled, and nothing is left running."""
    config = make_config(train={"epochs": 400, "minibatch": 6})
    project = Project(config.with_name("project"))
    home = tmp_path / "prefect"
    machine = Machine(home, free_port())
    up = subprocess.Popen(
        [sys.executable, "-m", "rlm_cli.main", "up", "--port", str(machine.port), "--home", str(home)],
        cwd=ROOT,
        env={name: value for name, value in machine.env.items() if name not in ("PREFECT_HOME", "PREFECT_API_URL")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        said = ""
        while "the UI is at" not in said:
            line = up.stdout.readline()
            assert line, said
            said += line
        assert f"http://127.0.0.1:{machine.port}" in said
        assert {row["name"] for row in machine.ask("/deployments/filter", {})} == {"iterate", "improve", "exam"}
        wait_for(lambda: len(machine.ask("/work_pools/rlm/workers/filter", {})) == 1)
        assert left_of(home)
        machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}")
        wait_for(lambda: (project.run(1) / "metrics.jsonl").exists())
    finally:
        up.send_signal(number)
        rest, _ = up.communicate(timeout=300)
    assert up.returncode == 0, rest
    assert left_of(home) == []
    with project.held() as killed:
        assert killed is None, "it was stopped and not killed"
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        assert database.execute("SELECT state_name FROM flow_run WHERE state_type != 'SCHEDULED'").fetchall() == [
            ("Cancelled",)
        ]


def test_up_says_where_it_has_to_be_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlm_cli.main", "up"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"rlm: {tmp_path}/prefect.yaml does not exist; start rlm up where prefect.yaml is\n"
