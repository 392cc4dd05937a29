"""Bars in the UI for what takes long in a flow run: answers sampled, optimizer steps. Each is one artifact.

The server is spoken to in a thread of its own: who reports progress must not wait for it.
"""

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from rlm_core.errors import one_line
from rlm_core.progress import Progress, listening
from rlm_core.stage_progress import StageBook, StageProgress
from tasks.pages import artifact_key

SHOWN = ("rollout", "train")
_EVERY_S = 2.0
"""Between two calls of Prefect's API."""


@contextmanager
def progress_in_ui(project: str) -> Iterator[None]:
    """Show how far the stages are for the time of the block, as `rollout-PROJECT` and `train-PROJECT`.

    That the server cannot be told is no error.

    Args:
        project: its directory.
    """
    bars = _Bars(Path(project).absolute().name)
    ended = threading.Event()
    context = contextvars.copy_context()  # which flow run it is
    thread = threading.Thread(target=context.run, args=(_keep, bars, ended), name="progress bars", daemon=True)
    thread.start()
    try:
        with listening(bars):
            yield
    finally:
        ended.set()
        thread.join(_EVERY_S)


@dataclass
class _Bar:
    stage: StageProgress
    artifact: UUID | None = None
    told: tuple[int, int] = (0, 0)
    """What of it the UI has: done, total."""


class _Bars:
    def __init__(self, project: str):
        self._project = project
        self._book = StageBook()
        self._bars: dict[str, _Bar] = {}

    def __call__(self, progress: Progress) -> None:
        if progress.stage in SHOWN:
            with self._book.add(progress) as stage:
                self._bars.setdefault(stage.name, _Bar(stage))

    def tell_one(self) -> bool:
        """Make one call of the API; whether there was anything to tell."""
        with self._book.lock:
            news = [bar for bar in self._bars.values() if bar.told != (bar.stage.done, bar.stage.total)]
            if not news:
                return False
            bar = news[-1]  # the stage that came last
            done, total = bar.told = bar.stage.done, bar.stage.total
            line = bar.stage.line()
        percent = 100 * done / total
        if bar.artifact is None:
            made = create_progress_artifact(percent, artifact_key(bar.stage.name, self._project), line)
            bar.artifact = cast(UUID, made)  # typed as if it could be awaited, too
        else:
            update_progress_artifact(bar.artifact, percent, line)
        return True


def _keep(bars: _Bars, ended: threading.Event) -> None:
    log = get_run_logger()
    try:
        while not ended.wait(_EVERY_S):
            bars.tell_one()
        while bars.tell_one():
            pass
    except Exception as error:
        log.info("progress is not shown in the UI any more: %s", one_line(error))
