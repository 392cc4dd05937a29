"""Experiment trackers: an iteration's figures, sent to where a person compares runs. Off unless `trackers` names some.

A tracker is a module with `send(told)`, which imports its library only then. Accounts and addresses are the tracker's
own environment variables, such as WANDB_API_KEY or MLFLOW_TRACKING_URI, and never settings of ours.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlm_core.errors import UsageError, one_line
from rlm_core.files import read_jsonl, read_record
from rlm_core.state.project import Project
from rlm_core.state.run import Run
from rlm_core.summary import Summary
from rlm_core.training.trainer import StepMetrics


@dataclass(frozen=True)
class Told:
    """One iteration, as a tracker is told of it: one run of the tracker's."""

    project: str
    run: str
    directory: Path
    """Of the project: where a tracker that needs no server keeps its files."""
    config: dict[str, Any]
    steps: list[dict[str, float]]
    """Of each optimizer step, the first one first."""
    figures: dict[str, float]
    """Of the whole iteration."""


def require_trackers(names: Sequence[str]) -> None:
    """Raises UsageError when one is not installed; the message says what to install."""
    for name in names:
        if find_spec(name) is None:
            raise UsageError(f"trackers: {name} is not installed; install it: pip install 'rlm-flows[{name}]'")


def tell_trackers(names: Sequence[str], project: Path, iteration: int, warn: Callable[[str], None]) -> None:
    """Send a finished iteration to these trackers. What it came to is decided, so one that cannot be told is a warning.

    Args:
        project: the project's directory.
    """
    for name in names:
        try:
            import_module(f"{__name__}.to_{name}").send(_told(Project(project), iteration))
        except Exception as error:
            warn(f"{name} was not told of iteration {iteration}: {one_line(error)}")


def _told(project: Project, iteration: int) -> Told:
    run = Run(project.run(iteration))
    decision = run.read_decision()
    figures = dict(_numbers(read_record(run.summary, Summary).model_dump(mode="json")))
    for name in ("benchmark", "holdout"):
        if (comparison := getattr(decision, name)) is not None:
            figures |= dict(_numbers(comparison.model_dump(mode="json"), f"{name}/"))
    steps = read_jsonl(run.metrics, StepMetrics) if run.metrics.exists() else ()
    return Told(
        project=project.root.name,
        run=f"iteration {iteration}",
        directory=project.root,
        config=json.loads(run.config.read_text()),
        steps=[dict(_numbers(step.model_dump(mode="json"))) for step in steps],
        figures=figures | {"accepted": float(decision.accepted)},
    )


def _numbers(content: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record by name, those of a record within it as `name/number`."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{name}/")
        elif isinstance(value, int | float):
            yield f"{before}{name}", float(value)
