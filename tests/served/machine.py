"""One machine's Prefect: commands, what they started, what its server says."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm_cli.services import end_process
from tests.chaos.kills import processes_with

ROOT = Path(__file__).parents[2]
SETUP = (
    "prefect server start",
    "prefect work-pool create rlm --type process",
    "prefect deploy --all",
    "prefect worker start --pool rlm",
)
"""What docs/deployments.md says to start, in its order."""

_WAIT_S = 300
"""For anything: the machine may be busy."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Machine:
    """Runs Prefect's commands against a server of its own, whose home is a directory that only it has."""

    def __init__(self, home: Path, port: int):
        self.home, self.port = home, port
        self.api = f"http://127.0.0.1:{port}/api"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_PREFETCH_SECONDS": "2",
            "PYTHONPATH": str(ROOT),
            "NO_PROXY": "127.0.0.1",
            "COLUMNS": "200",
        }
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._lines: dict[str, tuple[str, ...]] = {}

    def start(self, line: str, *more: str) -> None:
        """Start a command that goes on until `end`; it is known by its second word, such as server."""
        words = [*shlex.split(line), *more]
        self._lines[words[1]] = (line, *more)
        with (self.home / f"{words[1]}.log").open("ab") as log:
            process = subprocess.Popen(
                self._command(words),
                cwd=ROOT,
                env=self.env,
                stdout=log,
                stderr=log,
                # A worker ends by SIGINT, which is ignored by what a shell has started in the background.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._started[words[1]] = process

    def kill(self, name: str) -> None:
        """kill -9 of a command that was started."""
        self._started[name].kill()
        self._started[name].wait()

    def restart(self, name: str) -> None:
        """Start a command that was killed, as it was started before."""
        self.start(*self._lines[name])
        if name == "server":
            self.wait_until_up()

    def follow(self, line: str, *more: str, code: int = 0, timeout_s: float = _WAIT_S) -> str:
        """What a command printed that ended with this code."""
        done = subprocess.run(
            self._command([*shlex.split(line), *more]),
            cwd=ROOT,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def _command(self, words: list[str]) -> list[str]:
        modules = {"prefect": ["prefect", "--no-prompt"], "rlm": ["rlm_cli.main"]}
        return [sys.executable, "-m", *modules[words[0]], *words[1:]]

    def made_by(self, said: str) -> str:
        """The id of the run that `prefect deployment run` says it made."""
        found = re.search(r"UUID:\s*([0-9a-f-]{36})", said)
        assert found is not None, said
        return found[1]

    def events(self, name: str, project: str) -> list[dict[str, Any]]:
        """The payloads of a project's events of this name, newest first."""
        found = self.ask("/events/filter", {"filter": {"event": {"name": [name]}}})["events"]
        return [event["payload"] for event in found if event["payload"]["project"] == project]

    def ask(self, path: str, content: dict[str, Any] | None = None) -> Any:
        """What the server answers; with `content`, to a POST."""
        request = urllib.request.Request(
            f"{self.api}{path}",
            data=None if content is None else json.dumps(content).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def runs(self, flow: str, **names: Any) -> list[dict[str, Any]]:
        """The runs of a flow, oldest first."""
        wanted = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_ASC", **names}
        return list(self.ask("/flow_runs/filter", wanted))

    def run(self, run_id: str) -> dict[str, Any]:
        return dict(self.ask(f"/flow_runs/{run_id}"))

    def wait_until_up(self) -> None:
        def up() -> bool:
            try:
                return self.ask("/health") is True
            except OSError:
                return False

        wait_for(up)

    def wait_until_over(self, run_id: str) -> dict[str, Any]:
        """The run once it is in a final state."""
        wait_for(lambda: self.run(run_id)["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"))
        return self.run(run_id)

    def logs(self, run_id: str) -> list[str]:
        found = self.ask("/logs/filter", {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_ASC"})
        return [line["message"] for line in found]

    def processes(self) -> list[str]:
        """Command lines of the processes whose Prefect has its home here."""
        return processes_with(f"PREFECT_HOME={self.home}")

    def end(self) -> None:
        """End what was started, the last first: a worker wants to tell the server that it goes."""
        for process in reversed(self._started.values()):
            end_process(process, 60)


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.2)
