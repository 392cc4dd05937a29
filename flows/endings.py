"""What is made known of runs that do not complete: a plain state on the runs page, an event for automations."""

from contextlib import suppress
from typing import Any

from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flows import Flow
from prefect.states import Cancelled, State

from rlm_core.config_file import load_config
from rlm_core.errors import Interrupted, RlmError
from tasks.events import tell


def when_stopped(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001  Prefect's names
    """Call a run cancelled that was stopped on request."""
    _is_stopped(flow_run, state)


def when_failed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Tell of a run that failed and was not just stopped."""
    if not _is_stopped(flow_run, state):
        when_crashed(flow, flow_run, state)


def when_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """Tell of a run whose process ended, or whose work raised."""
    with suppress(RlmError):  # a config that cannot be read names no project
        project = load_config(flow_run.parameters["config"]).project
        tell("failed", project, {"flow_run": flow_run.name, "reason": state.message})


def _is_stopped(flow_run: FlowRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    if not isinstance(error, Interrupted):
        return False
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run.id, Cancelled(message=str(error)), force=True)
    return True
