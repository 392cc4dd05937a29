"""Iterations of self-play one after another: the nightly job."""

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from pydantic import Field

from flows.console import outlive_the_reader
from flows.endings import MISTAKES, completed, mistaken, when_crashed, when_stopped
from flows.iterate import iterate
from rlm_core.config_file import load_config
from rlm_core.phrases import counted
from rlm_core.progress import pause, stopping_on_signals
from rlm_core.series import Series, SeriesLimits
from tasks.events import tell


@flow(
    name="improve",
    flow_run_name="improve · {config}",
    on_failure=[when_stopped],  # of what failed, its iteration tells
    on_crashed=[when_crashed],
)
def improve(
    config: Annotated[str, Field(min_length=1)] = "configs/quick.yaml",
    iterations: Annotated[int, Field(ge=0)] = 0,
    stalled_after: Annotated[int, Field(ge=0)] = 6,
    hours: Annotated[float, Field(gt=0)] | None = None,
    pause_s: Annotated[float, Field(ge=0)] = 0.0,
    late_hours: Annotated[float, Field(ge=0)] | None = None,
) -> dict[str, Any]:
    """Run iterations of a project one after another, each a run of `iterate`, until a limit is reached.

    One iteration of a project is at work at a time. When another run has the project, the next iteration waits for it
    as long as `hours` allows; without `hours`, as `prefect.wait_for_project_s` in the config says (0 by default: it
    fails at once and says who has it).

    An iteration that was stopped before is continued first.

    Args:
        config: path of the config file, relative to the working directory of the deployment.
        iterations: how many to run at most. 0 goes on until another limit is reached or the run is cancelled.
        stalled_after: ends when the gate has rejected so many candidates in a row. 0 never does.
        hours: no iteration is begun that would end later than so many hours from the start, were it to take as long as
            the longest before it. Empty is no limit.
        pause_s: seconds to wait between two iterations.
        late_hours: a run of the schedule that begins more than so many hours late does nothing, as the machine was off
            at its time. Empty lets it run.

    Returns:
        Why it ended and the outcome of each iteration, as JSON data.
    """
    outlive_the_reader()
    late = hours_late(_this_run())
    if late_hours is not None and late > late_hours:
        ended = f"skipped: it is {late:.1f} hours late, and late_hours is {late_hours:g}"
        return _ended(ended, Series(SeriesLimits()))
    series = Series(SeriesLimits(iterations, stalled_after, hours))
    try:
        with stopping_on_signals():
            ended = _run(config, series, pause_s)
        if series.stalled:
            tell("stalled", load_config(config).project, {"reason": ended, "outcomes": series.outcomes})
        return _ended(ended, series)
    except MISTAKES as error:
        return mistaken(error)


def _run(config: str, series: Series, pause_s: float) -> str:
    """Run iterations until the series is over; why it is."""
    log = get_run_logger()
    while True:
        if (reason := series.over(pause_s if series.outcomes else 0.0)) is not None:
            return reason
        if series.outcomes:
            pause(pause_s)
        done = iterate(config, wait_for_project_s=series.left_s)
        decision = done["decision"]
        series.add(decision["outcome"], done["seconds"])
        log.info("iteration %s: %s: %s", decision["iteration"], decision["outcome"], decision["reason"])


def _ended(reason: str, series: Series) -> dict[str, Any]:
    get_run_logger().info("ended: %s", reason)
    done = f"; iterations: {counted(Counter(series.outcomes))}" if series.outcomes else ""
    return completed(f"{reason}{done}", {"ended": reason, "outcomes": series.outcomes})


def _this_run() -> FlowRun:
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run


def hours_late(run: FlowRun) -> float:
    """How long after its time a run of a schedule is; 0 for one that somebody asked for."""
    if not run.auto_scheduled or run.expected_start_time is None:
        return 0.0
    return (datetime.now(UTC) - run.expected_start_time).total_seconds() / 3_600
