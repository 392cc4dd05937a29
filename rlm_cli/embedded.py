"""Run a flow in this process, with Prefect's own temporary server: nothing to start, no account."""

import os
import time
from pathlib import Path
from typing import Any

from rlm_cli.watch import Watcher
from rlm_core.config import load_config
from rlm_core.iteration import check
from rlm_core.progress import listening

_SETTINGS = {
    # The default of 20 s is not enough for a fresh database on a small machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # The terminal shows progress; the log is in the UI. `rlm` itself reports the error that ended a run.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
}


def run_iteration(config: Path) -> dict[str, Any]:
    """Run one iteration with live progress.

    Prefect's settings can still be set from outside: PREFECT_API_URL, for one, makes a running server record the run.

    Returns:
        What the flow `iterate` returns.

    Raises:
        RlmError: as the flow does.
    """
    watcher = Watcher()
    check(load_config(config), say=watcher.say)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    started = time.monotonic()
    watcher.say("starting Prefect")
    from flows.iterate import iterate

    with watcher, listening(watcher):
        result = iterate(str(config))
    result["seconds"] = time.monotonic() - started
    return result
