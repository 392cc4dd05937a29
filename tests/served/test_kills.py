"""kill -9 of the flow's process, the worker and the server: nothing but starting again is needed.

RLM_CHAOS_SERVED asks for so many further kills at random moments, RLM_CHAOS_SEED says which, and for a server that is
gone for a minute.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from rlm_core.state.project import Project
from tasks.caching import RESULTS
from tests.chaos.kills import SEED, next_iteration, outcome, partial_files
from tests.conftest import MakeConfig
from tests.served.machine import Machine, wait_for

ROUNDS = int(os.environ.get("RLM_CHAOS_SERVED", "0"))
_OUTAGE_S = 60


class Target:
    """A project that is worked on through the deployment `iterate`."""

    def __init__(self, machine: Machine, config: Path):
        self.machine, self.config = machine, config
        self.project = Project(config.with_name("project"))
        started = time.monotonic()
        self.machine.follow("rlm run", "--config", str(config))
        self.seconds = time.monotonic() - started
        self.expected: dict[str, Any] = outcome(self.project)
        """What an iteration comes to that is not disturbed."""

    def start(self) -> str:
        """Ask for a run; its id, once it has the project."""
        run = self.machine.made_by(
            self.machine.follow("prefect deployment run iterate/iterate", "--param", f"config={self.config}")
        )
        wait_for(lambda: self._flow_run() == run or self.over(run))
        return run

    def begin_anew(self) -> str:
        shutil.rmtree(self.project.root)
        return self.start()

    def steps(self) -> int:
        metrics = self.project.run(1) / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    def kill_flow(self) -> None:
        """Kill the process that holds the project; nothing when none does any more."""
        signed = (self.project.root / "lock").read_text()
        if signed:
            os.kill(json.loads(signed)["pid"], signal.SIGKILL)

    def over(self, run: str) -> bool:
        return bool(self.machine.run(run)["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"))

    def finished(self) -> set[tuple[str, int]]:
        """The stages and shards whose results are there, and when each was written."""
        results = self.project.run(1) / RESULTS
        return {(path.name, path.stat().st_mtime_ns) for path in results.glob("[!.]*")}

    def assert_undisturbed(self, idle: Collection[str], finished: Collection[tuple[str, int]] = ()) -> None:
        """It ended as expected, what was finished was not made again, and nothing is left of it.

        Args:
            idle: command lines of the server and the worker when they have nothing to do.
            finished: what was before the kill.
        """
        assert outcome(self.project) == self.expected
        assert self.finished() >= set(finished)
        assert partial_files(self.project) == []
        wait_for(lambda: set(self.machine.processes()) <= set(idle))

    def _flow_run(self) -> str | None:
        try:
            signed: dict[str, str] = json.loads((self.project.root / "lock").read_text())
        except (OSError, ValueError):
            return None
        return signed["flow_run"]


@pytest.mark.timeout(1_200)
def test_an_iteration_ends_as_if_flow_worker_and_server_had_not_been_killed(
    machine: Machine, make_config: MakeConfig
) -> None:
    """The flow's process while it samples; worker and server while the next run trains, which then goes on alone."""
    idle = machine.processes()
    target = Target(machine, make_config(train={"epochs": 40, "minibatch": 6}))
    first = target.begin_anew()
    wait_for(lambda: (target.project.run(1) / "rollouts").exists())
    finished = target.finished()
    target.kill_flow()
    assert machine.wait_until_over(first)["state_name"] == "Crashed"
    second = target.start()
    wait_for(lambda: target.steps() > 2)
    machine.kill("worker")
    machine.kill("server")
    machine.restart("server")
    machine.restart("worker")
    assert machine.wait_until_over(second)["state_name"] == "Completed", machine.logs(second)
    target.assert_undisturbed(idle, finished)


@pytest.mark.skipif(not ROUNDS, reason="RLM_CHAOS_SERVED asks for no kills")
@pytest.mark.timeout(1_200)
def test_a_server_that_is_gone_for_a_minute_is_not_missed(machine: Machine, make_config: MakeConfig) -> None:
    """Connections are refused from the last steps of training until after the iteration has been decided."""
    idle = machine.processes()
    target = Target(machine, make_config())
    run = target.begin_anew()
    wait_for(lambda: target.steps() > 0)
    finished = target.finished()
    machine.kill("server")
    gone = time.monotonic()
    wait_for(lambda: next_iteration(target.project.ledger) == 2)
    time.sleep(max(0.0, _OUTAGE_S - (time.monotonic() - gone)))
    machine.restart("server")
    assert machine.wait_until_over(run)["state_name"] == "Completed", machine.logs(run)
    target.assert_undisturbed(idle, finished)


@pytest.mark.skipif(not ROUNDS, reason="RLM_CHAOS_SERVED asks for no kills")
@pytest.mark.timeout(7_200)
def test_kills_at_random_moments_change_nothing_in_the_end(
    machine: Machine, make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """By turns the flow's process, the worker, the server and all of them at once, as when the power goes."""
    idle = machine.processes()
    target = Target(machine, make_config())

    def kill_all() -> None:
        machine.kill("worker")
        target.kill_flow()
        machine.kill("server")

    victims: dict[str, tuple[Callable[[], None], list[str]]] = {
        "flow": (target.kill_flow, []),
        "worker": (lambda: machine.kill("worker"), ["worker"]),
        "server": (lambda: machine.kill("server"), ["server"]),
        "all": (kill_all, ["server", "worker"]),
    }
    for number in range(ROUNDS):
        name, (kill, again) = list(victims.items())[number % len(victims)]
        after_s = random.Random(f"{SEED}:{number}").uniform(0, 0.8 * target.seconds)
        with capsys.disabled():
            print(f"seed {SEED}, {number + 1} of {ROUNDS}: {name} after {after_s:.1f} s", flush=True)
        run = target.begin_anew()
        time.sleep(after_s)
        finished = target.finished()
        kill()
        for service in again:
            machine.restart(service)
        if name != "all":  # the rest goes on, or sees it
            machine.wait_until_over(run)
        if next_iteration(target.project.ledger) != 2:
            machine.follow("prefect deployment run iterate/iterate --watch", "--param", f"config={target.config}")
        target.assert_undisturbed(idle, finished)
        assert target.over(run), "Prefect takes it for running"
