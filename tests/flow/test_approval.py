"""A person is asked about an accept, in the UI's way: through Prefect's API."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.flow_runs import resume_flow_run

import flows.approval
from flows.iterate import iterate
from rlm_core import progress
from rlm_core.config import GateSection
from rlm_core.config_file import load_config
from rlm_core.errors import Interrupted
from rlm_core.iteration import begin
from rlm_core.records import Approval
from rlm_core.state.ledger import open_ledger
from tests.conftest import MakeConfig
from tests.core.test_approval import decision
from tests.flow.test_iterate import project_of


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows.approval, "_POLL_S", 0.2)
    monkeypatch.setattr(flows.approval, "_LOOK_EVERY_S", 0.1)


def form_of(client: SyncPrefectClient, run: FlowRun) -> str:
    """What the UI shows above the form of a paused run."""
    assert run.state is not None
    keys: Any = run.state.state_details.run_input_keyset
    return client.read_flow_run_input(run.id, keys["description"])


@contextmanager
def somebody(answer: dict[str, Any]) -> Iterator[list[str]]:
    """Resumes the run that pauses during the block, with this answer; collects what is shown to them."""
    shown: list[str] = []
    over = threading.Event()

    def watch() -> None:
        with get_client(sync_client=True) as client:
            known = {run.id for run in client.read_flow_runs() if run.state and run.state.is_paused()}
            started.set()
            while not over.wait(0.1):
                for run in client.read_flow_runs():
                    if run.id not in known and run.state and run.state.is_paused():
                        # A run pauses before all of its form is there.
                        with suppress(ObjectNotFound, PrefectHTTPStatusError, RuntimeError):
                            form = form_of(client, run)
                            resume_flow_run(run.id, run_input=answer)
                            shown.append(form)
                            return

    started = threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    started.wait()
    try:
        yield shown
    finally:
        over.set()
        thread.join()


def test_an_accept_waits_for_a_person_who_sees_the_report(make_config: MakeConfig) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask"})
    with somebody({"answer": "accept", "comment": "looks good"}) as shown:
        decision = iterate(str(config))["decision"]
    assert decision["outcome"] == "accepted"
    assert decision["approval"] == {"accept": True, "comment": "looks good", "in_time": True}
    assert decision["reason"].startswith("approved by a person (looks good): ")
    [form] = shown
    assert "# Iteration 1: accept proposed" in form
    page = (project_of(config).run(1) / "gate.md").read_text()
    assert page.startswith("# Iteration 1: accepted\n\nApproved by a person (looks good): ")
    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(any_=["gate-project"])
        published = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    assert page in [artifact.data for artifact in published]
    assert "Iteration 1: accept proposed" in [artifact.description for artifact in published]


def test_a_person_may_refuse(make_config: MakeConfig) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask"})
    with somebody({"answer": "reject", "comment": ""}):
        decision = iterate(str(config))["decision"]
    assert decision["outcome"] == "rejected"
    assert decision["reason"].startswith("refused by a person: ")
    with open_ledger(project_of(config).ledger) as ledger:
        assert ledger.incumbent() is None
        assert ledger.lineage().learner is None


@pytest.mark.parametrize(("unanswered", "outcome"), [("reject", "rejected"), ("accept", "accepted")])
def test_without_an_answer_in_time_the_config_says_what_is_done(
    make_config: MakeConfig, unanswered: str, outcome: str
) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask", "approve_within_s": 1.5, "unanswered": unanswered})
    state = iterate(str(config), return_state=True)
    assert state.is_completed()
    decision = state.result()["decision"]
    assert decision["outcome"] == outcome
    assert not decision["approval"]["in_time"]


@flow
def asks(unanswered: Literal["accept", "reject"]) -> Approval:
    section = GateSection(approve="ask", approve_within_s=0.3, unanswered=unanswered)
    return flows.approval.UiQuestion(decision(), "project")("the page", section)


@pytest.mark.parametrize(("person", "unanswered"), [(True, "reject"), (False, "accept")])
def test_an_answer_that_comes_just_before_the_resume_at_the_limit_counts(
    monkeypatch: pytest.MonkeyPatch, person: bool, unanswered: Literal["accept", "reject"]
) -> None:
    def somebody_was_quicker(run: UUID, run_input: dict[str, Any]) -> None:
        resume_flow_run(run, run_input={"answer": "accept" if person else "reject", "comment": "just in time"})
        with get_client(sync_client=True) as client:  # as Prefect's function does after it has seen the run paused
            assert client.resume_flow_run(run, run_input=run_input).status == SetStateStatus.ABORT

    monkeypatch.setattr(flows.approval, "resume_flow_run", somebody_was_quicker)
    assert asks(unanswered) == Approval(accept=person, comment="just in time")


def test_a_limit_that_comes_before_the_form_is_there_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def too_early_at_first(run: UUID, run_input: dict[str, Any]) -> None:
        tried.append(run)
        if len(tried) == 1:
            raise RuntimeError("Cannot resume this run: Run input schema not found.")
        resume_flow_run(run, run_input=run_input)

    monkeypatch.setattr(flows.approval, "resume_flow_run", too_early_at_first)
    assert asks("accept") == Approval(accept=True, in_time=False)
    assert len(tried) > 1


def test_a_stop_is_noticed_while_a_person_is_waited_for_and_the_next_run_asks_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(gate={"horizon": 1, "approve": "ask"})

    def stop_while_asking(stage: str) -> None:
        with progress.stopped():
            progress.check(stage)

    started = time.monotonic()
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(flows.approval, "check", stop_while_asking)
        iterate(str(config))
    assert time.monotonic() - started < 60
    with open_ledger(project_of(config).ledger) as ledger:
        assert ledger.next_iteration() == 1
    page = project_of(config).run(1) / "gate.md"
    assert page.read_text().startswith("# Iteration 1: accept proposed")
    begin(load_config(config))
    assert not page.exists()  # an iteration that was begun again is not decided
    with somebody({"answer": "accept", "comment": ""}):
        assert iterate(str(config))["decision"]["outcome"] == "accepted"


def test_nobody_is_asked_about_what_is_not_to_be_accepted(make_config: MakeConfig) -> None:
    config = make_config(gate={"rule": "threshold", "threshold": 1.0, "approve": "ask"}, train={"learning_rate": 1e-6})
    decision = iterate(str(config))["decision"]
    assert (decision["outcome"], decision["approval"]) == ("rejected", None)
