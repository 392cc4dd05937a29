"""Live progress in the log of the flow run, which the UI shows while it runs, and what the stages warn of."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from prefect import get_run_logger

from rlm_core.errors import one_line
from rlm_core.progress import Progress, listening
from rlm_core.stage_progress import StageBook

_Log: TypeAlias = "logging.Logger | logging.LoggerAdapter[logging.Logger]"
_EVERY_S = 15.0
"""Between two lines about a stage."""


@contextmanager
def progress_in_log() -> Iterator[None]:
    """Write how far the stages are to this flow run's log for the time of the block, and what they warn of."""
    log = get_run_logger()
    with listening(_Writer(log)), _warnings_in(log):
        yield


@contextmanager
def _warnings_in(log: "_Log") -> Iterator[None]:
    """What the core's own loggers warn of, such as what is judged again and why, is in the run's log, too: Prefect
    knows nothing of them, and what comes from a thread of theirs could not be told whose run it is about."""
    handler, core = _Forwarding(log), logging.getLogger("rlm_core")
    core.addHandler(handler)
    try:
        yield
    finally:
        core.removeHandler(handler)


class _Forwarding(logging.Handler):
    def __init__(self, log: "_Log"):
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, "%s", one_line(record.getMessage()))


class _Writer:
    def __init__(self, log: "_Log"):
        self._log = log
        self._book = StageBook()

    def __call__(self, progress: Progress) -> None:
        with self._book.add(progress) as stage:
            if self._book.due(stage, _EVERY_S):
                self._log.info(stage.line())
