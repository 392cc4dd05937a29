"""Run flows from the command line: with a server of the command's own, or with the one that PREFECT_API_URL names."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from flows.extras import require_runner
from rlm_cli.approve import TerminalQuestion, asks_here
from rlm_cli.prefect_server import local_environment, start_temporary_server
from rlm_cli.watch import Watcher
from rlm_core.approval import asking
from rlm_core.config_file import load_config
from rlm_core.errors import one_line
from rlm_core.iteration import check
from rlm_core.progress import listening
from rlm_core.trackers import require_trackers

_SETTINGS = {
    # The terminal shows progress; the log is in the UI. `rlm` itself reports the error that ended a run.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

_TOLD_BY = ("prefect.task_runs", "prefect.flow_runs")
"""Loggers whose warnings a person at the terminal should see. What the core warns of is in the flow run's log."""


def make_prefect_ready(watcher: Watcher) -> None:
    """See to Prefect's settings and API. Prefect must not have been imported before."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if not os.environ.get("PREFECT_API_URL"):
        watcher.say("starting Prefect")
        os.environ.update(local_environment())
        os.environ["PREFECT_API_URL"] = start_temporary_server()


class _Warnings(logging.Handler):
    """What the flow and its tasks warn of, such as a shard that is tried again; what ends them is an error."""

    def __init__(self, say: Callable[[str], None]):
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self._say(one_line(record.getMessage()))


@contextmanager
def showing_warnings(say: Callable[[str], None]) -> Iterator[None]:
    """Show warnings, each on a line, for the time of the block."""
    handler = _Warnings(say)
    for name in _TOLD_BY:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in _TOLD_BY:
            logging.getLogger(name).removeHandler(handler)


def run_iterations(config: Path, count: int) -> Iterator[dict[str, Any]]:
    """Run iterations one after another with live progress; for each, what the flow `iterate` returns.

    Raises:
        RlmError: as the flow does.
    """
    first = Watcher()
    settings = load_config(config)
    require_runner(settings.prefect)
    require_trackers(settings.trackers)
    here = asks_here(settings.gate)
    check(settings, say=first.say)
    make_prefect_ready(first)
    from flows.iterate import iterate

    for _ in range(count):
        with (
            Watcher() as watcher,
            listening(watcher),
            showing_warnings(watcher.say),
            asking(TerminalQuestion(watcher)) if here else nullcontext(),
        ):
            result = iterate(str(config))
        yield result
