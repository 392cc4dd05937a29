"""What happened to a project, as Prefect events: what automations react to."""

from pathlib import Path
from typing import Any

from prefect.events import emit_event


def tell(what: str, project: str, payload: dict[str, Any]) -> None:
    """Emit `rlm.WHAT` about the project in this directory.

    Args:
        what: asked, accepted, probation, rejected, stalled or failed.
        payload: JSON-able data.
    """
    root = Path(project).absolute()
    resource = {"prefect.resource.id": f"rlm.project.{root.name}", "prefect.resource.name": root.name}
    emit_event(event=f"rlm.{what}", resource=resource, payload={"project": str(root), **payload})
