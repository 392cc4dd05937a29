"""A Prefect API server that lives as long as the command.

Prefect would start one by itself, but in the terminal's process group, where Ctrl-C ends it before the run can record
that it was stopped, and where it outlives a command that was killed. This one is in a session of its own and has a
guard that ends it when the command is gone, however it went.
"""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from typing import IO

from rlm_cli.guard import Guard
from rlm_cli.services import wait_until_it_works

STARTUP_S = 180.0
"""A fresh database takes tens of seconds on a small machine."""
PREFECT = "Prefect's server"

_ENVIRONMENT = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""As Prefect starts its own temporary server: without UI, scheduler and other services that nobody would use."""

_APPLICATION = ("--factory", "prefect.server.api.server:create_app", "--log-level", "error", "--lifespan", "on")


def start_temporary_server() -> str:
    """Start a server that ends with this process; the URL of its API.

    It ends after the process's other threads: Prefect's last logs and events are sent when a process ends, and for
    more than a minute when there is nobody to take them.

    Raises:
        InfrastructureFault: it did not start; the message has its last words.
    """
    port = _free_port()
    guard = Guard()
    words = tempfile.TemporaryFile()  # noqa: SIM115  not a pipe, which would fill up unread; it goes with the process
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *_APPLICATION, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **_ENVIRONMENT, **guard.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=words,
        start_new_session=True,
    )
    atexit.register(_stop, server, guard, words)
    url = f"http://127.0.0.1:{port}/api"
    wait_until_it_works(PREFECT, lambda: is_there(f"{url}/health"), server, STARTUP_S, lambda: _content(words))
    return url


def local_environment() -> dict[str, str]:
    """This process's environment, with this machine reached without a proxy, whatever leads elsewhere."""
    names = ("NO_PROXY", "no_proxy")
    return {**os.environ, **{name: ",".join(filter(None, [os.environ.get(name), "127.0.0.1"])) for name in names}}


def is_there(url: str) -> bool:
    """Whether a server of this machine answers at this URL with 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _content(words: IO[bytes]) -> str:
    words.seek(0)
    return words.read().decode(errors="replace")


def _stop(server: subprocess.Popen[bytes], guard: Guard, words: IO[bytes]) -> None:
    words.close()
    guard.end()
    server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
