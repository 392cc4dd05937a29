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
import time
import urllib.error
import urllib.request
from typing import IO

from rlm_core.errors import InfrastructureFault

_STARTUP_S = 180.0
"""A fresh database takes tens of seconds on a small machine."""

_ENVIRONMENT = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
"""As Prefect starts its own temporary server: without UI, scheduler and other services that nobody would use."""

_APPLICATION = ("--factory", "prefect.server.api.server:create_app", "--log-level", "error", "--lifespan", "on")

_GUARD = "import os, signal, sys; os.read(0, 1); os.kill(int(sys.argv[1]), signal.SIGTERM)"
"""Waits for its standard input to end, which happens when the process that holds the other end is gone."""


def start_temporary_server() -> str:
    """Start a server that ends with this process; the URL of its API.

    It ends after the process's other threads: Prefect's last logs and events are sent when a process ends, and for
    more than a minute when there is nobody to take them.

    Raises:
        InfrastructureFault: it did not start; the message has its last words.
    """
    port = _free_port()
    words = tempfile.TemporaryFile()  # noqa: SIM115  not a pipe, which would fill up unread; it goes with the process
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *_APPLICATION, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=words,
        start_new_session=True,
    )
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _GUARD, str(server.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_stop, server, guard, words)
    url = f"http://127.0.0.1:{port}/api"
    _wait_until_ready(url, server, words)
    return url


def _stop(server: subprocess.Popen[bytes], guard: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    words.close()
    guard.kill()
    guard.communicate()
    server.terminate()
    try:
        server.wait(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    deadline = time.monotonic() + _STARTUP_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            words.seek(0)
            last = " ".join(words.read().decode(errors="replace").split())[-200:]
            raise InfrastructureFault(f"Prefect's server ended while starting: {last or 'no reason given'}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise InfrastructureFault(f"Prefect's server was not ready within {_STARTUP_S:g} s")
