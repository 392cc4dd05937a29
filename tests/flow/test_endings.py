"""What a run's state says in the UI when the run has ended, and what its log keeps of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect import Flow, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun

import flows.iterate
from flows.exam import exam
from flows.improve import improve
from flows.iterate import iterate
from rlm_core.errors import ProblemError
from tests import tiny
from tests.conftest import MakeConfig


def ended(flow: Flow[..., Any], *given: Any, **named: Any) -> tuple[FlowRun, Callable[..., Any]]:
    """The run as the server knows it, and what gives its result."""
    state: Any = flow(*given, **named, return_state=True)
    with get_client(sync_client=True) as client:
        return client.read_flow_run(state.state_details.flow_run_id), state.result


def children(run: FlowRun) -> list[FlowRun]:
    of = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=of)


def says(run: FlowRun) -> tuple[str | None, str | None]:
    assert run.state is not None
    return run.state.name, run.state.message


def test_a_series_and_its_iterations_say_what_came_of_them(make_config: MakeConfig) -> None:
    run, result = ended(improve, str(make_config()), iterations=1)
    assert result() == {"ended": "its one iteration is done", "outcomes": ["accepted"]}
    assert says(run) == ("Completed", "its one iteration is done; iterations: 1 (1 accepted)")
    [child] = children(run)
    name, message = says(child)
    assert name == "Completed"
    assert message is not None
    assert message.startswith("accepted: ")
    assert " is a gain with p = " in message


def test_an_exam_says_who_sat_what_and_the_score(make_config: MakeConfig, tmp_path: Path) -> None:
    suite = tiny.write_problems(tmp_path / "suite.jsonl", tiny.problems(4))
    given = {"config": str(make_config()), "policy": "reference", "suite": suite}
    run, result = ended(exam, **given)
    assert result()["pass_at"] == {"1": 1.0}
    assert says(run) == ("Completed", f"reference on {suite}: pass@1 1.000")
    run, _ = ended(exam, **given)
    assert says(run) == ("Completed", f"reference on {suite}: pass@1 1.000, as it was sat before")


def with_traceback(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


def test_a_users_mistake_is_one_line_of_the_log_and_the_states_message(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """In a series and its iteration; who calls it from Python, as the command line does, has the error itself."""
    config = make_config(evaluate={"benchmark": "nowhere.jsonl"})
    run, result = ended(improve, str(config), iterations=1)
    with pytest.raises(ProblemError) as caught:
        result()
    told = str(caught.value)
    assert "nowhere.jsonl" in told
    assert says(run) == ("Failed", told)
    assert [says(child) for child in children(run)] == [("Failed", told)]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [told, told]
    assert with_traceback(caplog) == []


def test_an_exam_of_nobody_is_one_line_of_the_log_and_the_states_message(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = ended(exam, str(make_config()), policy="nobody")
    name, message = says(run)
    assert name == "Failed"
    assert message is not None
    assert message.startswith("there is no policy 'nobody': ")
    assert with_traceback(caplog) == []


def test_a_bug_keeps_its_traceback(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def begin(_: Any) -> Any:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(flows.iterate, "begin", begin)
    run, _ = ended(iterate, str(make_config()))
    assert says(run) == ("Failed", "Flow run encountered an exception: RuntimeError: a bug of ours")
    assert with_traceback(caplog) == ["Encountered exception during execution: RuntimeError('a bug of ours')"]
