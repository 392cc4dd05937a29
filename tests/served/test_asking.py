"""A person is asked about an accept, and answers as Prefect's UI does: what they see, and what comes of the answer."""

from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from rlm_core.records import AdapterRef, GateDecision
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.served.machine import Machine, wait_for

pytestmark = pytest.mark.timeout(600)


def asked(machine: Machine, config: Path) -> str:
    """The id of a run that has paused with its whole form."""
    run = machine.made_by(machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}"))
    wait_for(lambda: machine.run(run)["state_name"] in ("Paused", "Failed", "Crashed"))
    assert machine.run(run)["state_name"] == "Paused", machine.logs(run)
    wait_for(lambda: len(machine.ask(f"/flow_runs/{run}/input/filter", {"prefix": "paused-", "limit": 2})) == 2)
    return run


def answer(machine: Machine, run: str, **form: str) -> Any:
    """What the server says to a form; to a busy one it is sent again, as a person would."""
    said: list[Any] = []

    def sent() -> bool:
        try:
            said.append(machine.ask(f"/flow_runs/{run}/resume", {"run_input": form}))
        except HTTPError as error:
            assert error.code == 503
        return bool(said)

    wait_for(sent)
    return said[0]


def outcome(config: Path) -> tuple[GateDecision, AdapterRef | None, AdapterRef | None]:
    """The only decision, the incumbent and the learner."""
    with open_ledger(Project(config.with_name("project")).ledger, create=False) as ledger:
        [entry] = ledger.history()
        return entry.decision, ledger.incumbent(), ledger.lineage().learner


def test_a_person_sees_what_to_decide_and_accepts_although_the_worker_was_killed(
    machine: Machine, make_config: MakeConfig
) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask"})
    project = Project(config.with_name("project"))
    run = asked(machine, config)
    assert any(page["data"] == project.run(1).joinpath("gate.md").read_text() for page in pages(machine, run))
    keys = machine.run(run)["state"]["state_details"]["run_input_keyset"]
    shown = machine.ask(f"/flow_runs/{run}/input/{keys['description']}")
    assert shown.startswith("# Iteration 1: accept proposed\n\n")
    assert "| candidate | 0.800 | 0.833 |" in shown
    assert "UTC: reject.**\n" in shown
    form = machine.ask(f"/flow_runs/{run}/input/{keys['schema']}")
    assert (list(form["properties"]), form["required"]) == (["answer", "comment"], ["answer"])
    assert all(field["description"] for field in form["properties"].values())
    [event] = wait_for_events(machine, project)
    assert event["reason"].startswith("accept or reject? ")
    wait_for(lambda: event["reason"] in machine.logs(run))

    machine.kill("worker")
    machine.restart("worker")
    for incomplete in ({"comment": "and the answer?"}, {"answer": "perhaps"}):
        refused = answer(machine, run, **incomplete)
        assert (refused["status"], machine.run(run)["state_name"]) == ("REJECT", "Paused")
    answer(machine, run, answer="accept", comment="looks good")
    assert machine.wait_until_over(run)["state_name"] == "Completed", machine.logs(run)
    decision, incumbent, learner = outcome(config)
    assert decision.reason.startswith("approved by a person (looks good): ")
    assert incumbent == learner == decision.candidate
    wait_for(lambda: f"Iteration 1: accepted: {decision.reason}" in machine.logs(run))


def pages(machine: Machine, run: str) -> list[dict[str, Any]]:
    wanted = {"artifacts": {"key": {"any_": ["gate-project"]}, "flow_run_id": {"any_": [run]}}}
    return list(machine.ask("/artifacts/filter", wanted))


def wait_for_events(machine: Machine, project: Project) -> list[dict[str, Any]]:
    wait_for(lambda: bool(machine.events("rlm.asked", str(project.root))))
    return machine.events("rlm.asked", str(project.root))


def test_a_person_rejects(machine: Machine, make_config: MakeConfig) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask"})
    run = asked(machine, config)
    answer(machine, run, answer="reject", comment="too long")
    assert machine.wait_until_over(run)["state_name"] == "Completed", machine.logs(run)
    decision, incumbent, learner = outcome(config)
    assert (decision.outcome, incumbent, learner) == ("rejected", None, None)
    assert decision.reason.startswith("refused by a person (too long): ")


def test_nobody_answers_within_the_limit(machine: Machine, make_config: MakeConfig) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask", "approve_within_s": 2, "unanswered": "accept"})
    run = machine.made_by(machine.follow("prefect deployment run iterate/iterate", "--param", f"config={config}"))
    assert machine.wait_until_over(run)["state_name"] == "Completed", machine.logs(run)
    decision, incumbent, learner = outcome(config)
    assert decision.reason.startswith("approved because nobody answered in time: ")
    assert incumbent == learner == decision.candidate is not None
