"""How runs end: a state that says why on the runs page; for those that do not complete, an event for automations."""

from contextlib import suppress
from typing import Any, TypeVar, cast

from prefect import get_client, get_run_logger
from prefect.client.schemas.objects import FlowRun
from prefect.flows import Flow
from prefect.states import Cancelled, Completed, Failed, State

from rlm_core.config_file import load_config
from rlm_core.errors import Busy, Interrupted, RlmError, UsageError
from tasks.events import tell

_R = TypeVar("_R")

MISTAKES = (UsageError, Busy)
"""What is mended by asking for something else, or later: where in the code it was noticed tells nobody anything."""


def completed(why: str, result: _R) -> _R:
    """For a flow to return, so that its run's state says what came of it.

    It is a state of Prefect's. Who calls the flow is given what it holds: `result`.
    """
    return cast(_R, Completed(message=why, data=result))


def mistaken(error: RlmError) -> dict[str, Any]:
    """For a flow to return in the place of raising one of MISTAKES, of which Prefect would log the traceback.

    The error is one line of the log and the state's message. Who calls the flow has it raised as ever.
    """
    get_run_logger().error("%s", error)
    return cast(dict[str, Any], Failed(message=str(error), data=error))


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
        tell("failed", project, {"flow_run": _name_of(flow_run), "reason": state.message})


def _name_of(flow_run: FlowRun) -> str:
    """As it is now; the one that is given here is from before the run was named, in a worker a word by chance."""
    try:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(flow_run.id).name
    except Exception:
        return flow_run.name


def _is_stopped(flow_run: FlowRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    if not isinstance(error, Interrupted):
        return False
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run.id, Cancelled(message=str(error)), force=True)
    return True
