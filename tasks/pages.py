"""A decision's page as a Prefect artifact."""

import re
from pathlib import Path

from prefect.artifacts import create_markdown_artifact

from rlm_core.iteration import Iteration
from rlm_core.records import GateDecision


def publish(iteration: Iteration, decision: GateDecision, page: str) -> None:
    """Show the page in the UI. All iterations of a project have the same key, so it keeps them as versions."""
    create_markdown_artifact(
        markdown=page,
        key=artifact_key(Path(iteration.project).name),
        description=f"Iteration {decision.iteration}: {decision.outcome}",
    )


def artifact_key(project: str) -> str:
    """`gate-` and the project's name, in the letters that Prefect allows."""
    return "-".join(filter(None, ["gate", *re.findall(r"[a-z0-9]+", project.lower())]))
