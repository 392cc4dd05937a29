"""Pages as Prefect artifacts. All iterations of a project have the same keys, so the UI keeps them as versions."""

import re
from pathlib import Path

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from rlm_core.errors import one_line
from rlm_core.pages.write import write_pages

_TITLES = {"iteration": "stages, samples, what to look at", "learning": "learning curve and history"}


def publish(project: Path, page: str) -> None:
    """Show the gate's page in the UI."""
    _show("gate", project, page, title_of(page))


def title_of(page: str) -> str:
    """A page's first line, without the mark of a heading."""
    return page.partition("\n")[0].removeprefix("# ")


def publish_ended(project: Path, iteration: int) -> None:
    """Write the pages of an iteration that is in the ledger, and show them.

    They only tell what was decided, so that they cannot be had is a warning.
    """
    try:
        for name, text in write_pages(project, iteration).items():
            _show(name, project, text, f"Iteration {iteration}: {_TITLES[name]}")
    except Exception as error:
        get_run_logger().warning("the pages of iteration %s: %s", iteration, one_line(error))


def _show(name: str, project: Path, page: str, description: str) -> None:
    """Show a page in the UI. It is in the iteration's directory too, so a server that cannot be told is a warning."""
    try:
        create_markdown_artifact(markdown=page, key=artifact_key(name, project.name), description=description)
    except Exception as error:
        get_run_logger().warning("Prefect's UI does not get the page %s: %s", name, one_line(error))


def artifact_key(page: str, project: str) -> str:
    """The page's and the project's name, in the letters that Prefect allows."""
    return "-".join([page, *re.findall(r"[a-z0-9]+", project.lower())])
