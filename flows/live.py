"""Live progress in the log of the flow run, which the UI shows while it runs."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import get_run_logger

from rlm_core.progress import Progress, listening
from rlm_core.stage_progress import StageProgress

_EVERY_S = 15.0
"""A line per stage at most this often, and one when it is done."""


@contextmanager
def progress_in_log() -> Iterator[None]:
    """Write how far the stages are to this flow run's log for the time of the block."""
    with listening(_Writer(get_run_logger())):
        yield


class _Writer:
    def __init__(self, log: "logging.Logger | logging.LoggerAdapter[logging.Logger]"):
        self._log = log
        self._stages: dict[str, StageProgress] = {}
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            stage = self._stages.setdefault(progress.stage, StageProgress(progress.stage))
            stage.add(progress)
            now = time.monotonic()
            if stage.done == stage.total or now - self._written.setdefault(stage.name, now) >= _EVERY_S:
                self._written[stage.name] = now
                self._log.info(stage.line())
