"""One iteration of a project at a time: the flow's place, and what the one before left in it when it was killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect import get_client, get_run_logger
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Crashed

from rlm_core.config import Config
from rlm_core.errors import one_line
from rlm_core.progress import check
from rlm_core.state.lock import Holder
from rlm_core.state.project import Project
from tasks.events import tell


@contextmanager
def the_project_of(config: Config, wait_s: float | None) -> Iterator[None]:
    """Hold the project for the time of the block.

    Args:
        wait_s: seconds to wait at most for another holder. None: as many as the config says.

    Raises:
        Busy: another process holds it still.
        Interrupted: a stop was asked for while waiting.
    """
    told: list[str] = []

    def on_wait(busy: str) -> None:
        if busy not in told:
            told.append(busy)
            get_run_logger().warning("waiting: %s", busy)
        check("waiting")

    project = Project(Path(config.project).absolute())
    patience_s = config.prefect.wait_for_project_s if wait_s is None else wait_s
    with project.held(patience_s, flow_run.id, on_wait) as killed:
        if killed is not None and killed.flow_run not in (None, flow_run.id):
            _close_run_of(killed, project)
        yield


def _close_run_of(killed: Holder, project: Project) -> None:
    """Let Prefect know that the run of a process that was killed is over: by itself it takes it for running for ever.

    Nothing depends on it, so that it cannot be told is no error.
    """
    log, why = get_run_logger(), f"{killed} was killed"
    try:
        with get_client(sync_client=True) as client:
            runs = list(_with_its_parents(client, UUID(killed.flow_run)))
            unnoticed = [run for run in runs if run.state is not None and not run.state.is_final()]
            for run in unnoticed:
                client.set_flow_run_state(run.id, Crashed(message=why), force=True)
                log.warning("the flow run %s ended unnoticed: %s", run.name, why)
        if unnoticed == runs:  # else a worker saw it, which told of it or had been asked to stop it
            tell("failed", str(project.root), {"flow_run": runs[0].name, "reason": why})
    except ObjectNotFound:  # it was another server's
        return
    except Exception as error:
        log.info("Prefect could not be told that %s was killed: %s", killed, one_line(error))


def _with_its_parents(client: SyncPrefectClient, run_id: UUID) -> Iterator[FlowRun]:
    """The flow run, and those that it is a part of: they are at work in the same process."""
    run = client.read_flow_run(run_id)
    yield run
    if run.parent_task_run_id is not None:
        parent = client.read_task_run(run.parent_task_run_id).flow_run_id
        assert parent is not None
        yield from _with_its_parents(client, parent)
