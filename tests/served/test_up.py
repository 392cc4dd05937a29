"""`rlm up`: everything on one machine by one command, and nothing of it afterwards."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rlm_core.state.project import Project
from tests.chaos.kills import ids_with
from tests.conftest import MakeConfig
from tests.served.machine import ROOT, Machine, free_port, wait_for

pytestmark = pytest.mark.timeout(600)

SERVICES = ("rlm_cli.main serve", "prefect server start", "prefect worker start")
UP = [sys.executable, "-m", "rlm_cli.main", "up"]


@contextmanager
def up(machine: Machine, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`rlm up` on this machine, once it says where the UI is."""
    process = subprocess.Popen(
        [*UP, "--port", str(machine.port), "--home", str(machine.home), *options],
        cwd=ROOT,
        env={name: value for name, value in machine.env.items() if name not in ("PREFECT_HOME", "PREFECT_API_URL")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "the UI is at" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert f"http://127.0.0.1:{machine.port}" in said
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=300)


def test_up_serves_the_deployments_until_ctrl_c(tmp_path: Path, make_config: MakeConfig) -> None:
    """What is at work then is cancelled, and nothing is left running."""
    config = make_config(train={"epochs": 400, "minibatch": 6})
    project = Project(config.with_name("project"))
    machine = Machine(tmp_path / "prefect", free_port())
    with up(machine) as process:
        assert {row["name"] for row in machine.ask("/deployments/filter", {})} == {"iterate", "improve", "exam"}
        wait_for(lambda: len(machine.ask("/work_pools/rlm/workers/filter", {})) == 1)
        assert machine.processes()
        machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}")
        wait_for(lambda: (project.run(1) / "metrics.jsonl").exists())
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=300)
    assert process.returncode == 0, rest
    assert machine.processes() == []
    with project.held() as killed:
        assert killed is None, "it was stopped and not killed"
    with closing(sqlite3.connect(machine.home / "prefect.db")) as database:
        assert database.execute("SELECT state_name FROM flow_run WHERE state_type != 'SCHEDULED'").fetchall() == [
            ("Cancelled",)
        ]


def test_what_is_killed_comes_back_by_itself_and_the_iteration_ends(tmp_path: Path, make_config: MakeConfig) -> None:
    """kill -9 of the inference server while it answers a rollout; of Prefect's server and the worker in training."""
    port = free_port()
    config = make_config(
        rollout={
            "engine": "server",
            "servers": [f"http://127.0.0.1:{port}"],
            "group_size": 48,
            "shard_problems": 1,
            "batch_size": 4,
        },
        train={"epochs": 4, "minibatch": 6},
    )
    run_directory = Project(config.with_name("project")).run(1)
    shards = run_directory / "rollouts"
    machine = Machine(tmp_path / "prefect", free_port())
    with up(machine, "--serve", "--serve-port", str(port), "--config", str(config)) as process:
        before = {name: found for name in SERVICES if (found := process_of(machine, name))}
        run = machine.made_by(machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}"))
        wait_for(lambda: any(shards.glob("*.jsonl")))
        os.kill(before["rlm_cli.main serve"], signal.SIGKILL)
        assert len(list(shards.glob("*.jsonl"))) < 6, "it was killed in the middle"
        wait_for(lambda: (run_directory / "metrics.jsonl").exists())
        for name in ("prefect server start", "prefect worker start"):
            os.kill(before[name], signal.SIGKILL)
        wait_for(lambda: all(process_of(machine, name) not in (before[name], None) for name in SERVICES))
        machine.wait_until_up()
        ended = machine.wait_until_over(run)
        assert ended["state_name"] == "Completed", machine.logs(run)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert machine.processes() == []
    told = re.findall(r"^(.*) ended by itself with code -9 and is started again in 1 s", said, re.MULTILINE)
    assert (told[0], sorted(told[1:])) == ("the inference server", ["Prefect's server", "the worker"])


def process_of(machine: Machine, words: str) -> int | None:
    """The process of this machine with these words in its command line."""
    return next((number for number, line in ids_with(f"PREFECT_HOME={machine.home}").items() if words in line), None)


def test_nothing_is_left_of_one_that_was_killed_and_a_second_one_knows_who_has_the_home(
    tmp_path: Path, make_config: MakeConfig
) -> None:
    config = make_config(train={"epochs": 400, "minibatch": 6})
    project = Project(config.with_name("project"))
    machine = Machine(tmp_path / "prefect", free_port())
    with up(machine) as process:
        machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}")
        wait_for(lambda: (project.run(1) / "metrics.jsonl").exists())
        second = subprocess.run(
            [*UP, "--port", str(free_port()), "--home", str(machine.home)],
            cwd=ROOT,
            env=machine.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 3
        assert second.stderr.startswith(f"rlm: {machine.home} is in use by process {process.pid} since ")
        process.kill()
        process.communicate()
        killed = time.monotonic()
        wait_for(lambda: machine.processes() == [])
        assert time.monotonic() - killed < 30
    with project.held() as before:
        assert before is not None


def test_up_says_where_it_has_to_be_started(tmp_path: Path) -> None:
    done = subprocess.run(
        UP,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"rlm: {tmp_path}/prefect.yaml does not exist; start rlm up where prefect.yaml is\n"
