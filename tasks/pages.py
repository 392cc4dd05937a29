"""Pages as Prefect artifacts. All iterations of a project have the same keys, so the UI keeps them as versions."""

import re
from pathlib import Path

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from rlm_core.errors import one_line
from rlm_core.iteration import Iteration
from rlm_core.pages.write import write_pages
from rlm_core.records import GateDecision

_TITLES = {"iteration": "stages, samples, what to look at", "learning": "learning curve and history"}


def publish(iteration: Iteration, decision: GateDecision, page: str) -> None:
    """Show the gate's page in the UI."""
    _show("gate", iteration, page, f"Iteration {decision.iteration}: {decision.outcome}")


def publish_ended(iteration: Iteration) -> None:
    """Write the pages of an iteration that is in the ledger, and show them.

    They only tell what was decided, so that they cannot be had is a warning.
    """
    try:
        for name, text in write_pages(Path(iteration.project), iteration.number).items():
            _show(name, iteration, text, f"Iteration {iteration.number}: {_TITLES[name]}")
    except Exception as error:
        get_run_logger().warning("the pages of iteration %s: %s", iteration.number, one_line(error))


def _show(name: str, iteration: Iteration, page: str, description: str) -> None:
    key = artifact_key(name, Path(iteration.project).name)
    create_markdown_artifact(markdown=page, key=key, description=description)


def artifact_key(page: str, project: str) -> str:
    """The page's and the project's name, in the letters that Prefect allows."""
    return "-".join([page, *re.findall(r"[a-z0-9]+", project.lower())])
