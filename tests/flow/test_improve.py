"""Iterations one after another."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun

import flows.improve
from flows.improve import hours_late, improve
from rlm_core import progress
from tests.conftest import MakeConfig
from tests.flow.test_iterate import project_of


def test_a_stop_in_a_pause_ends_the_series_as_cancelled(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config()

    def pause_and_stop(seconds: float) -> None:
        with progress.stopped():
            progress.pause(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(flows.improve, "pause", pause_and_stop)
        state = improve(str(config), pause_s=1_000, return_state=True)
    assert state.state_details.flow_run_id is not None
    with get_client(sync_client=True) as client:
        shown = client.read_flow_run(state.state_details.flow_run_id).state
    assert shown is not None
    assert shown.name == "Cancelled"
    assert shown.message == "stopped on request; the next run continues from what was finished"
    assert project_of(config).run(1).is_dir()
    assert not project_of(config).run(2).exists()


def run(hours: float, auto_scheduled: bool) -> FlowRun:
    expected = datetime.now(UTC) - timedelta(hours=hours)
    return FlowRun.model_validate(
        {"flow_id": uuid4(), "auto_scheduled": auto_scheduled, "expected_start_time": expected}
    )


def test_only_runs_of_the_schedule_can_be_late() -> None:
    assert hours_late(run(hours=5, auto_scheduled=True)) == pytest.approx(5, abs=0.01)
    assert hours_late(run(hours=5, auto_scheduled=False)) == 0


def test_a_late_run_does_nothing(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config()
    monkeypatch.setattr(flows.improve, "hours_late", lambda _: 5.0)
    assert improve(str(config), late_hours=2) == {
        "ended": "skipped: it is 5.0 hours late, and late_hours is 2",
        "outcomes": [],
    }
    assert not project_of(config).root.exists()
