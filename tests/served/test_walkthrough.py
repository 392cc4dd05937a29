"""Every command of docs/deployments.md is run as it stands there, but for the project that it is about."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.served.machine import ROOT, SETUP, Machine, wait_for
from tests.served.test_deployments import CANCEL

pytestmark = pytest.mark.timeout(900)

DOC = (ROOT / "docs" / "deployments.md").read_text()
LINES = re.findall(r"^ {4}((?:prefect|rlm) .+)$", DOC, re.MULTILINE)
CREATE = "prefect automation create --from-file automations/"
NOTIFY, REEXAMINE = f"{CREATE}notify.yaml", f"{CREATE}reexamine.yaml"
UP = "rlm up"
RUN = "prefect deployment run "


def test_no_command_is_left_out() -> None:
    """Those that are not in this file are run by the fixture `machine`, by test_up.py and by test_deployments.py."""
    here = [line for line in LINES if line.startswith((RUN, "rlm show", "rlm report"))]
    assert [UP, *SETUP, CANCEL, NOTIFY, REEXAMINE] == [line for line in LINES if line not in here]


def test_deployments_are_run_and_looked_at(machine: Machine, make_config: MakeConfig) -> None:
    """What came of it is shown by the server, and without one."""
    config = make_config()
    project = Project(config.with_name("project"))
    made = []
    for line in LINES:
        if line.startswith(RUN):
            words = re.sub(r" --param config=\S+", "", line)
            made.append(machine.made_by(machine.follow(words, "--param", f"config={config}")))
            machine.wait_until_over(made[-1])
    assert [machine.run(run)["state_name"] for run in made] == ["Completed"] * len(made)
    with open_ledger(project.ledger, create=False) as ledger:
        entries = ledger.history()
    assert len(entries) == 4

    names = {run["name"] for run in machine.runs("iterate")}
    assert {f"project · iteration {entry.number} · {entry.decision.outcome}" for entry in entries} <= names
    tasks = machine.ask("/task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [made[0]]}}})
    assert {"iteration 1 · rollout shard 1/3", "iteration 1 · candidate sits the benchmark"} <= {
        t["name"] for t in tasks
    }
    wait_for(lambda: any(line.startswith("train (steps): ") for line in machine.logs(made[0])))
    for page in ("learning", "iteration", "gate"):
        key = {"artifacts": {"key": {"any_": [f"{page}-project"]}}, "sort": "CREATED_DESC"}
        versions = machine.ask("/artifacts/filter", key)
        assert versions[0]["data"] == (project.run(4) / f"{page}.md").read_text()
    for stage in ("rollout", "train"):
        of_one = {"key": {"any_": [f"{stage}-project"]}, "flow_run_id": {"any_": [made[0]]}}
        assert [bar["data"] for bar in machine.ask("/artifacts/filter", {"artifacts": of_one})] == [100.0]

    for line in LINES:
        if line.startswith(("rlm show", "rlm report")):
            printed = machine.follow(line, "--config", str(config))
            assert "Iteration 1: " in printed or "4 iterations" in printed or "report.html" in printed
    assert "<svg" in (project.root / "report.html").read_text()


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An address that takes JSON, and what it was sent."""
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def create_automation(machine: Machine, line: str, directory: Path, **action: object) -> None:
    """Do what `line` says with the file that it names, in whose action this is filled in; it is about any project."""
    [*words, name] = line.split()
    content = yaml.safe_load((ROOT / name).read_text())
    [automation] = content["automations"]
    automation["trigger"]["match"] = {"prefect.resource.id": "rlm.project.*"}
    automation["actions"][0] |= action
    file = directory / "automation.yaml"
    file.write_text(yaml.safe_dump(content))
    machine.follow(" ".join([*words, str(file)]))


_BLOCK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock as Block
block = Block(name="test", url=sys.argv[1], json_data={"subject": "{{subject}}", "body": "{{body}}"})
print(block.save("rlm-notify"))
"""


def test_the_automation_tells_of_a_failure(machine: Machine, make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(evaluate={"holdout": "/no/such/suite.yaml"})
    with webhook() as (url, got):
        made = subprocess.run(
            [sys.executable, "-c", _BLOCK, url], env=machine.env, capture_output=True, text=True, check=True
        )
        create_automation(machine, NOTIFY, tmp_path, block_document_id=made.stdout.strip())
        run = machine.made_by(machine.follow(RUN + "iterate/iterate", "--param", f"config={config}"))
        machine.wait_until_over(run)
        project = str(config.with_name("project"))
        wait_for(lambda: any(project in message["body"] for message in got))
    [told] = [message for message in got if project in message["body"]]
    assert told["subject"] == "rlm.failed"
    assert "/no/such/suite.yaml" in told["body"]


def test_the_other_automation_examines_what_was_accepted(
    machine: Machine, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(gate={"rule": "threshold", "threshold": 0.0})
    [deployment] = machine.ask("/deployments/filter", {"deployments": {"name": {"any_": ["exam"]}}})
    examined = yaml.safe_load((ROOT / "automations" / "reexamine.yaml").read_text())["automations"][0]["actions"][0]
    parameters = examined["parameters"] | {"config": str(config), "suite": str(tmp_path / "holdout.jsonl")}
    before = len(machine.runs("exam"))
    create_automation(machine, REEXAMINE, tmp_path, deployment_id=deployment["id"], parameters=parameters)
    machine.follow(RUN + "iterate/iterate --watch", "--param", f"config={config}")
    wait_for(lambda: len(machine.runs("exam")) > before)
    run = machine.wait_until_over(machine.runs("exam")[-1]["id"])
    assert (run["state_name"], run["parameters"]["policy"]) == ("Completed", "incumbent"), run["state"]
