"""One iteration of self-play: eight stages, one flow."""

import time
from typing import Annotated, Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from flows.console import outlive_the_reader
from flows.endings import MISTAKES, completed, mistaken, when_crashed, when_failed
from flows.extras import require_runner
from flows.live import progress_in_log
from flows.names import name_this_run
from flows.place import the_project_of
from flows.progress_bars import progress_in_ui
from flows.stages import Stages
from rlm_core.config_file import load_config
from rlm_core.iteration import begin
from rlm_core.progress import stopping_on_signals
from rlm_core.trackers import require_trackers
from tasks.gate import catch_up


@flow(
    name="iterate",
    flow_run_name="{config}",  # until the project can be begun, and if it cannot
    task_runner=ThreadPoolTaskRunner(max_workers=4),  # type: ignore[arg-type]
    on_failure=[when_failed],
    on_crashed=[when_crashed],
)
def iterate(
    config: str = "configs/quick.yaml", wait_for_project_s: Annotated[float, Field(ge=0)] | None = None
) -> dict[str, Any]:
    """Generate, mutate, filter, roll out, verify, train, evaluate, and let the gate decide.

    Args:
        config: path of the config file, relative to the working directory.
        wait_for_project_s: seconds to wait when another run has the project. Empty: what the config says.

    Returns:
        The gate's decision, the iteration's summary, and the seconds that it took, as JSON data.
    """
    outlive_the_reader()
    try:
        settings = load_config(config)
        require_runner(settings.prefect)
        require_trackers(settings.trackers)
        with (
            stopping_on_signals(),
            the_project_of(settings, wait_for_project_s),
            progress_in_log(),
            progress_in_ui(settings.project),
        ):
            started = time.monotonic()
            iteration = begin(settings)
            name = f"{iteration.project_name} · iteration {iteration.number}"
            name_this_run(name)
            catch_up(iteration, settings)
            stages = Stages(iteration, settings)
            proposals = stages.generate()
            mutants = stages.mutate(proposals)
            problems = stages.filter(proposals, mutants)
            rollouts, verdicts = stages.rollout_and_verify(problems)
            trained = stages.train(rollouts, verdicts)
            exams = stages.evaluate(trained)
            concluded = stages.gate(
                generated=proposals,
                mutated=mutants,
                filtered=problems,
                rollouts=rollouts,
                verdicts=verdicts,
                trained=trained,
                exams=exams,
            )
            decision = concluded["decision"]
            name_this_run(f"{name} · {decision['outcome']}")
            result = {**concluded, "seconds": time.monotonic() - started}
            return completed(f"{decision['outcome']}: {decision['reason']}", result)
    except MISTAKES as error:
        return mistaken(error)
