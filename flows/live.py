"""Live progress in the log of the flow run, which the UI shows while it runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import get_run_logger

from rlm_core.progress import Progress, listening
from rlm_core.stage_progress import StageBook

_EVERY_S = 15.0
"""Between two lines about a stage."""


@contextmanager
def progress_in_log() -> Iterator[None]:
    """Write how far the stages are to this flow run's log for the time of the block."""
    with listening(_Writer(get_run_logger())):
        yield


class _Writer:
    def __init__(self, log: "logging.Logger | logging.LoggerAdapter[logging.Logger]"):
        self._log = log
        self._book = StageBook()

    def __call__(self, progress: Progress) -> None:
        with self._book.add(progress) as stage:
            if self._book.due(stage, _EVERY_S):
                self._log.info(stage.line())
