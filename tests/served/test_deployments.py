"""The deployments, used as a person uses them: with Prefect's commands, against a server, with a worker."""

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.served.machine import ROOT, SETUP, Machine, wait_for

pytestmark = pytest.mark.timeout(600)

CANCEL = "prefect flow-run cancel ID"
DEPLOYED = {row["name"]: row for row in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}


def history(config: Path) -> list[int]:
    with open_ledger(Project(config.with_name("project")).ledger, create=False) as ledger:
        return [entry.number for entry in ledger.history()]


def test_everything_is_deployed_with_forms_that_say_what_to_enter(machine: Machine) -> None:
    found = {row["name"]: row for row in machine.ask("/deployments/filter", {})}
    assert found.keys() == DEPLOYED.keys() == {"iterate", "improve", "exam"}
    for name, row in found.items():
        assert row["work_pool_name"] == "rlm"
        assert row["enforce_parameter_schema"]
        assert row["description"] and "rlm" in row["tags"]
        for parameter, schema in row["parameter_openapi_schema"]["properties"].items():
            assert schema.get("description"), (name, parameter)
    [nightly] = found["improve"]["schedules"]
    assert nightly["active"]
    assert nightly["schedule"]["cron"] == DEPLOYED["improve"]["schedules"][0]["cron"]
    assert nightly["schedule"]["timezone"] == DEPLOYED["improve"]["schedules"][0]["timezone"]


def test_a_schedule_that_was_switched_off_stays_off_when_it_is_deployed_again(machine: Machine) -> None:
    def nightly() -> dict[str, Any]:
        [schedule] = machine.ask("/deployments/name/improve/improve")["schedules"]
        return dict(schedule)

    machine.follow("prefect deployment schedule pause improve/improve", nightly()["id"])
    try:
        machine.follow(SETUP[2])
        assert not nightly()["active"]
    finally:
        machine.follow("prefect deployment schedule resume improve/improve", nightly()["id"])
    assert nightly()["active"]


@pytest.mark.parametrize(
    ("deployment", "parameter", "value", "said"),
    [
        ("iterate", "config", 3, "is not of type 'string'"),
        ("improve", "config", "", "should be non-empty"),
        ("improve", "iterations", -1, "is less than the minimum of 0"),
        ("improve", "iterations", 1.5, "is not of type 'integer'"),
        ("improve", "iterations", "two", "is not of type 'integer'"),
        ("improve", "stalled_after", -1, "is less than the minimum of 0"),
        ("improve", "pause_s", -0.5, "is less than the minimum of 0"),
        ("improve", "hours", 0, "is less than or equal to the minimum of 0"),
        ("improve", "hours", "all night", "is not valid under any of the given schemas"),
        ("improve", "late_hours", -1, "is less than the minimum of 0"),
        ("exam", "policy", 3, "is not of type 'string'"),
        ("exam", "samples", 0, "is less than the minimum of 1"),
        ("exam", "temperature", 6, "is greater than the maximum of 5"),
        ("exam", "max_tokens", 0, "is less than the minimum of 1"),
        ("exam", "seed", -1, "is less than the minimum of 0"),
    ],
)
def test_a_parameter_that_is_not_possible_is_refused_by_name_before_a_run_is_made(
    machine: Machine, deployment: str, parameter: str, value: Any, said: str
) -> None:
    def asked_for() -> int:  # the schedule makes runs of its own
        return sum(not run["auto_scheduled"] for run in machine.runs(deployment))

    before = asked_for()
    made = machine.ask(f"/deployments/name/{deployment}/{deployment}")
    with pytest.raises(HTTPError) as caught:
        machine.ask(f"/deployments/{made['id']}/create_flow_run", {"parameters": {parameter: value}})
    assert caught.value.code == 409
    detail = json.loads(caught.value.read())["detail"]
    assert f"Validation failed for field '{parameter}'. Failure reason: {value!r} {said}" in detail
    assert asked_for() == before


def test_a_scheduled_series_runs_iterations_as_runs_of_their_own_until_it_stalls(
    machine: Machine, make_config: MakeConfig
) -> None:
    """N iterations, with a pause; and the gate that stalls."""
    config = make_config(gate={"rule": "threshold", "threshold": 1.0}, train={"learning_rate": 1e-6})
    given = {"config": str(config), "iterations": 5, "stalled_after": 2, "pause_s": 0.5}
    said = machine.follow(
        "prefect deployment run improve/improve", "--params", json.dumps(given), "--start-in", "2 seconds"
    )
    run = machine.wait_until_over(machine.made_by(said))
    assert run["state_name"] == "Completed", machine.logs(run["id"])
    assert history(config) == [1, 2]
    children = machine.runs("iterate", flow_runs={"parent_flow_run_id": {"any_": [run["id"]]}})
    assert [child["state_name"] for child in children] == ["Completed", "Completed"]
    wait_for(lambda: any("stalled: 2 candidates in a row were rejected" in line for line in machine.logs(run["id"])))
    project = str(config.with_name("project"))
    wait_for(lambda: len(machine.events("rlm.stalled", project)) == 1)
    assert machine.events("rlm.stalled", project)[0]["outcomes"] == ["rejected", "rejected"]
    assert [event["iteration"] for event in machine.events("rlm.rejected", project)] == [2, 1]


def test_a_cancelled_series_ends_cleanly_and_is_continued_by_the_next_run(
    machine: Machine, make_config: MakeConfig
) -> None:
    """Without end until it is cancelled."""
    config = make_config(train={"epochs": 150, "minibatch": 6})
    project = Project(config.with_name("project"))
    run_id = machine.made_by(machine.follow("prefect deployment run improve/improve", "--param", f"config={config}"))
    metrics = project.run(1) / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 2)
    machine.follow(CANCEL.replace("ID", run_id))
    run = machine.wait_until_over(run_id)
    assert run["state_name"] == "Cancelled", machine.logs(run_id)
    with project.held():  # nothing of it is at work
        steps = len(metrics.read_text().splitlines())
    [child] = machine.runs("iterate", flow_runs={"parent_flow_run_id": {"any_": [run_id]}})
    assert child["state_name"] == "Cancelled", child["state"]

    machine.follow("prefect deployment run iterate/iterate --watch", "--param", f"config={config}")
    assert history(config) == [1]
    numbers = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert len(numbers) > steps
    assert numbers == sorted(set(numbers))


def test_automations_are_told_of_a_series_whose_process_was_killed(machine: Machine, make_config: MakeConfig) -> None:
    """At once, by the worker; and not again by the next run, which continues the iteration."""
    config = make_config(train={"epochs": 150, "minibatch": 6})
    project = Project(config.with_name("project"))
    run_id = machine.made_by(machine.follow("prefect deployment run improve/improve", "--param", f"config={config}"))
    metrics = project.run(1) / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 2)
    holder = project.holder()
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    run = machine.wait_until_over(run_id)
    assert run["state_name"] == "Crashed"
    wait_for(lambda: len(machine.events("rlm.failed", str(project.root))) == 1)
    assert machine.events("rlm.failed", str(project.root))[0]["flow_run"] == run["name"]
    [child] = machine.runs("iterate", flow_runs={"parent_flow_run_id": {"any_": [run_id]}})

    machine.follow("prefect deployment run iterate/iterate --watch", "--param", f"config={config}")
    assert history(config) == [1]
    assert machine.run(child["id"])["state_name"] == "Crashed"
    wait_for(lambda: len(machine.events("rlm.accepted", str(project.root))) == 1)
    assert len(machine.events("rlm.failed", str(project.root))) == 1


def test_a_failed_run_says_why_and_tells_automations(machine: Machine, make_config: MakeConfig) -> None:
    config = make_config()
    project = Project(config.with_name("project"))
    with project.held():
        run_id = machine.made_by(
            machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}")
        )
        run = machine.wait_until_over(run_id)
    assert (run["state_name"], run["name"]) == (
        "Failed",
        str(config),
    )  # it has no iteration yet
    assert f"{project.root} is in use by process {os.getpid()} since" in run["state"]["message"]
    wait_for(lambda: len(machine.events("rlm.failed", str(project.root))) == 1)
    assert machine.events("rlm.failed", str(project.root))[0]["reason"] == run["state"]["message"]
