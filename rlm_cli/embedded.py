"""Run flows from the command line: with a server of the command's own, or with the one that PREFECT_API_URL names."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlm_cli.server import temporary_server
from rlm_cli.watch import Watcher
from rlm_core.config import load_config
from rlm_core.iteration import check
from rlm_core.progress import listening

_SETTINGS = {
    # The terminal shows progress; the log is in the UI. `rlm` itself reports the error that ended a run.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


@contextmanager
def prefect_ready(watcher: Watcher) -> Iterator[None]:
    """Prefect's settings and API for the time of the block. Prefect must not have been imported before."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if os.environ.get("PREFECT_API_URL"):
        yield
        return
    watcher.say("starting Prefect")
    with temporary_server() as url:
        os.environ["PREFECT_API_URL"] = url
        try:
            yield
        finally:
            del os.environ["PREFECT_API_URL"]


def run_iterations(config: Path, count: int) -> Iterator[dict[str, Any]]:
    """Run iterations one after another with live progress; for each, what the flow `iterate` returns and its seconds.

    Raises:
        RlmError: as the flow does.
    """
    check(load_config(config), say=(first := Watcher()).say)
    with prefect_ready(first):
        from flows.iterate import iterate

        for _ in range(count):
            started = time.monotonic()
            with Watcher() as watcher, listening(watcher):
                result = iterate(str(config))
            yield {**result, "seconds": time.monotonic() - started}
