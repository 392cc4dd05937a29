"""Iterations one after another."""

import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun

import flows.improve
from flows.improve import hours_late, improve
from rlm_core import progress
from rlm_core.config_file import load_config
from rlm_core.errors import Busy
from tests.conftest import MakeConfig
from tests.flow.test_iterate import project_of
from tests.samples.holder import holder


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


def test_a_series_waits_for_an_iteration_that_was_begun_by_hand_as_long_as_its_hours_allow(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config()
    assert load_config(config).prefect.wait_for_project_s == 0, "not because the config says so"
    with holder(project_of(config)) as process:
        killer = threading.Timer(1, process.kill)
        killer.start()
        done = improve(str(config), iterations=1, hours=1)
        killer.join()
    assert done["ended"] == "its one iteration is done"
    assert f"is in use by process {process.pid} since " in caplog.text


@pytest.mark.parametrize("hours", [None, 1e-6])
def test_a_series_without_hours_left_does_not_wait(make_config: MakeConfig, hours: float | None) -> None:
    config = make_config()
    with holder(project_of(config)), pytest.raises(Busy, match="is in use by process"):
        improve(str(config), iterations=1, hours=hours)
