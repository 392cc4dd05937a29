"""What all stage tasks have in common: caching, persisted results, retries.

A stage's result is a small JSON record that names files with their SHA-256, kept in the iteration's own directory. Its
key is made of the stage, its version and all its parameters; a stage is only given what it depends on, so a changed
setting runs exactly the stages again that read it. How many work at a time, and where, is no part of the key. A result
whose files are gone or damaged is thrown away.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE, CacheKeyFnPolicy
from prefect.context import TaskRunContext
from prefect.results import ResultRecord
from prefect.tasks import exponential_backoff
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from rlm_core.config import PrefectSection, Section
from rlm_core.errors import InfrastructureFault
from rlm_core.files import digest
from rlm_core.iteration import Iteration
from rlm_core.progress import time_limit
from rlm_core.records import StageResult

TAGS = ["rlm"]
"""The same for all stages: each new set of tags costs a task most of a second, in which Prefect asks for its limits."""


def stage_task(version: int, description: str) -> Callable[[Callable[..., StageResult]], Task[..., dict[str, Any]]]:
    """Make a task of a function that returns a StageResult.

    The function's first parameter is the iteration's `directory`. The task takes two parameters more: `timeout_s`, the
    time limit of one try, and `reads`, the digests of the problem files that the stage reads by name. It returns plain
    JSON data: a class would be looked up by its import path when a result is read back, and silently become a dict
    where that fails.

    Args:
        version: raised when the stage would give another result for the same parameters.
        description: one line for the UI.
    """

    def decorate(function: Callable[..., StageResult]) -> Task[..., dict[str, Any]]:
        def run(timeout_s: float, reads: dict[str, str], **parameters: Any) -> dict[str, Any]:  # noqa: ARG001  reads: for the key
            started = time.monotonic()
            with time_limit(timeout_s):
                result = function(**parameters)
            result = result.model_copy(update={"seconds": time.monotonic() - started})
            shown = {name: value for name, value in result.figures.items() if not isinstance(value, list | dict)}
            get_run_logger().info("%s: %s", function.__name__, ", ".join(f"{k} {v}" for k, v in shown.items()))
            return result.model_dump(mode="json")

        return task(
            name=function.__name__,
            version=str(version),
            description=description,
            tags=TAGS,
            cache_policy=CacheKeyFnPolicy(cache_key_fn=_stage_key),
            persist_result=True,
            result_serializer="json",
            retry_condition_fn=_worth_another_try,
        )(run)

    return decorate


def placed(stage: Task[..., dict[str, Any]], iteration: Iteration, section: PrefectSection, **options: Any) -> Any:
    """The task with its results kept in the iteration's directory and the configured retries.

    `options` go to `Task.with_options`, such as `task_run_name`.
    """
    return stage.with_options(result_storage=Path(iteration.directory, "results"), **_retries(section), **options)


def unplaced(stage: Task[..., dict[str, Any]], section: PrefectSection, **options: Any) -> Any:
    """The task outside of any iteration: with the configured retries, and no result kept by Prefect."""
    return stage.with_options(cache_policy=NO_CACHE, persist_result=False, **_retries(section), **options)


def _retries(section: PrefectSection) -> dict[str, Any]:
    return {
        "retries": section.retries,
        "retry_delay_seconds": exponential_backoff(section.retry_delay_s),
        "retry_jitter_factor": 0.5,
    }


def results_of(returned: Any) -> StageResult:
    """The record of what a stage task returned."""
    return StageResult.model_validate(returned)


def _stage_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """The name of the stage's result file."""
    name, given = context.task.name, parameters["parameters"]
    decides = {name: value.deciding() if isinstance(value, Section) else value for name, value in given.items()}
    key = f"{name}-{digest(name, context.task.version, parameters['reads'], to_jsonable_python(decides))}"
    _discard_if_damaged(Path(given["directory"], "results", key))
    return key


def _discard_if_damaged(stored: Path) -> None:
    """Delete a stored result whose files are not what they were, so that the stage runs again."""
    if not stored.is_file():
        return
    try:
        result = StageResult.model_validate(ResultRecord.deserialize(stored.read_bytes()).result)
        reason = None if result.intact() else "a file that it names is missing or altered"
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
    if reason is not None:
        get_run_logger().warning("%s runs again: %s", stored.name, reason)
        stored.unlink(missing_ok=True)


def _worth_another_try(_task: Any, _task_run: Any, state: Any) -> bool:
    """Retry what the machinery got wrong, never what the input got wrong."""
    return isinstance(state.result(raise_on_failure=False), InfrastructureFault)
