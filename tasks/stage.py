"""What all stage tasks have in common: caching, persisted results, retries.

How many work at a time, and where, is no part of what a stage is given and so none of its cache key; see `caching`.
Tasks have no tags: before one with tags Prefect asks its server for their limits, and a server that is gone fails it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.logging.loggers import task_run_logger
from prefect.tasks import exponential_backoff

from rlm_core.config import PrefectSection
from rlm_core.errors import InfrastructureFault
from rlm_core.iteration import Iteration
from rlm_core.phrases import figures_in_words
from rlm_core.progress import check, time_limit
from rlm_core.records import IterationResults, StageResult
from tasks.caching import RESULTS, StagePolicy
from tasks.storage import ResultFiles

Result = dict[str, Any]
"""A `StageResult` as JSON data: what a stage task returns, and what others are given of it."""


def stage_task(
    version: int, description: str, reads: Sequence[str], ignores: Sequence[str] = (), name: str | None = None
) -> Callable[[Callable[..., StageResult]], Task[..., Result]]:
    """Make a task of a function that returns a StageResult.

    The function's first parameter is the iteration's `directory`. The task takes two parameters more: `timeout_s`, the
    time limit of one try, and `files`, the digests of what the stage reads by name. It returns plain JSON data: a class
    would be looked up by its import path when a result is read back, and silently become a dict where that fails.

    Args:
        version, reads, ignores: see `StagePolicy`.
        description: one line for the UI.
        name: of the stage, where the function is called something else.
    """

    def decorate(function: Callable[..., StageResult]) -> Task[..., Result]:
        stage = name or function.__name__

        def run(timeout_s: float, files: dict[str, str], **parameters: Any) -> Result:  # noqa: ARG001  files: for the key
            with time_limit(timeout_s) as worked:
                check(stage)  # of many shards that wait to begin when a stop is asked for, none does
                result = function(**parameters)
                result = result.model_copy(update={"seconds": worked()})
            get_run_logger().info("%s: %s", stage, figures_in_words(result.figures))
            return result.within(Path(parameters["directory"])).model_dump(mode="json")

        return task(
            name=stage,
            version=str(version),
            description=description,
            cache_policy=StagePolicy(version=version, reads=reads, ignores=ignores),
            persist_result=True,
            result_serializer="json",
            retry_condition_fn=_worth_another_try,
        )(run)

    return decorate


def placed(
    stage: Task[..., Result], iteration: Iteration, section: PrefectSection, **options: Any
) -> Task[..., Result]:
    """The task with its results kept in the iteration's directory and the configured retries.

    `options` go to `Task.with_options`, such as `task_run_name`.
    """
    own = stage.with_options(**_retries(section), **options)
    # As an option Prefect takes only storage that its server has on record, which is more than a directory needs.
    own.result_storage = ResultFiles(basepath=str(Path(iteration.directory, RESULTS)))
    return own


def unplaced(stage: Task[..., Result], section: PrefectSection, **options: Any) -> Task[..., Result]:
    """The task outside of any iteration: with the configured retries, and no result kept by Prefect."""
    return stage.with_options(cache_policy=NO_CACHE, persist_result=False, **_retries(section), **options)


def _retries(section: PrefectSection) -> dict[str, Any]:
    return {
        "retries": section.retries,
        "retry_delay_seconds": exponential_backoff(section.retry_delay_s),
        "retry_jitter_factor": 0.5,
    }


def results_of(returned: Any, directory: str) -> StageResult:
    """The record of what a stage task of the iteration in this directory returned."""
    return StageResult.model_validate(returned).at(Path(directory))


def iteration_results_of(returned: dict[str, Any], directory: str) -> IterationResults:
    """The record of what all the stage tasks returned, those with shards or exams a list each."""

    def read(what: Any) -> Any:
        return [read(each) for each in what] if isinstance(what, list) else results_of(what, directory)

    return IterationResults.model_validate({name: read(what) for name, what in returned.items()})


def _worth_another_try(task: Any, task_run: Any, state: Any) -> bool:
    """Retry what the machinery got wrong, never what the input got wrong, and say so."""
    error = state.result(raise_on_failure=False)
    worth = isinstance(error, InfrastructureFault)
    if worth:
        task_run_logger(task_run, task).warning("%s is tried again: %s", task_run.name, error)
    return worth
