"""`rlm up`: Prefect's server with its UI, the work pool, the deployments and a worker on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from rlm_cli.guard import Guard
from rlm_cli.server import is_ready, local_environment, wait_until_ready
from rlm_core.errors import InfrastructureFault, UsageError, one_line
from rlm_core.state.lock import locked

DEPLOYMENTS = "prefect.yaml"
POOL = "rlm"

_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # The machine is busy with training, and SQLite waits no longer than this for another writer.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
}
_HOST = "127.0.0.1"
_LOOK_EVERY_S = 0.5
_CANCEL_S = 60.0
"""How long running iterations have to stop; the worker kills one that takes longer than half of it."""
_END_S = 20.0
_WAIT_FOR_HOME_S = 15.0
"""The guard of a command that was killed keeps its home until all is ended."""

_console = Console(highlight=False, markup=False)


class _Asked(Exception):
    """A signal asked for the end."""


def bring_up(port: int, home: Path | None, at_once: int) -> None:
    """Start what is not there yet, say where the UI is, and end what was started when SIGINT or SIGTERM comes.

    A server that answers already is used and left as it is. When this process is killed, a guard ends the rest.

    Raises:
        UsageError: there are no deployments in this directory.
        Busy: another one has this home.
        InfrastructureFault: something did not start, or ended by itself.
    """
    if not Path(DEPLOYMENTS).is_file():
        raise UsageError(f"{Path(DEPLOYMENTS).absolute()} does not exist; start rlm up where {DEPLOYMENTS} is")
    url = f"http://{_HOST}:{port}"
    given = {"PREFECT_HOME": str(home.absolute())} if home else {}
    logs = Path(given.get("PREFECT_HOME") or os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    own = _SETTINGS | given | {"PREFECT_API_URL": f"{url}/api"}
    with _signals(), ExitStack() as started:
        try:
            home_lock = started.enter_context(locked(logs / "rlm-up.lock", _WAIT_FOR_HOME_S, on_wait=_say_once()))
            guard = Guard(home_lock.handle)
            started.callback(guard.end)
            machine = _Machine(f"{url}/api", local_environment() | own | guard.environment, logs)
            _start(machine, started, port, at_once)
            _console.print(
                f"the UI is at {url}; logs of server and worker are in {logs}; Ctrl-C ends it all", soft_wrap=True
            )
            while True:
                machine.check()
                time.sleep(_LOOK_EVERY_S)
        except _Asked:
            _console.print("ending")


def _start(machine: "_Machine", started: ExitStack, port: int, at_once: int) -> None:
    if is_ready(machine.api):
        _console.print("using the server that is there already")
    else:
        _console.print("starting the server")
        started.enter_context(machine.service("server", "server", "start", "--host", _HOST, "--port", str(port)))
        wait_until_ready(machine.api, machine.services["server"], machine.log("server").read_text)
    if machine.ask(f"/work_pools/{POOL}") is None:
        machine.prefect("work-pool", "create", POOL, "--type", "process")
    machine.prefect("deploy", "--all")
    worker = ("worker", "start", "--pool", POOL, "--limit", str(at_once))
    started.enter_context(machine.service("worker", *worker))
    started.callback(machine.cancel_runs)


class _Machine:
    """Prefect's commands, and those of them that go on."""

    def __init__(self, api: str, environment: dict[str, str], logs: Path):
        self.api = api
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = environment
        self._logs = logs

    def log(self, name: str) -> Path:
        return self._logs / f"rlm-up-{name}.log"

    def prefect(self, *words: str) -> None:
        """Raises InfrastructureFault when the command fails."""
        done = subprocess.run(
            [*_command("--no-prompt"), *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = one_line(done.stderr + done.stdout)[-300:]
            raise InfrastructureFault(f"prefect {' '.join(words)} failed: {said}")

    @contextmanager
    def service(self, name: str, *words: str) -> Iterator[None]:
        """A command that goes on for the time of the block; in a session of its own, where Ctrl-C does not reach it."""
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [*_command(), *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.services[name] = process
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def check(self) -> None:
        """Raises InfrastructureFault when a service has ended by itself."""
        for name, process in self.services.items():
            if process.poll() is not None:
                last = one_line(self.log(name).read_text(errors="replace"))[-300:]
                raise InfrastructureFault(f"Prefect's {name} ended by itself with code {process.returncode}: {last}")

    def cancel_runs(self) -> None:
        """Let the worker stop what it has at work, so that no run seems to go on for ever.

        Runs do not say whose they are, so nothing is cancelled when the pool has other workers. Nothing can be when
        server or worker have ended.
        """
        if any(process.poll() is not None for process in self.services.values()):
            return
        online = {"workers": {"status": {"any_": ["ONLINE"]}}}
        if len(self.ask(f"/work_pools/{POOL}/workers/filter", online)) > 1:
            return
        running = self._at_work()
        for run in running:
            state = {"state": {"type": "CANCELLING", "message": "rlm up was ended"}}
            self.ask(f"/flow_runs/{run}/set_state", state)
        if running:
            _console.print(f"stopping {len(running)} running at the moment; the next run continues them")
        deadline = time.monotonic() + _CANCEL_S
        while time.monotonic() < deadline and self._at_work():
            time.sleep(_LOOK_EVERY_S)

    def _at_work(self) -> list[str]:
        wanted = {
            "flow_runs": {
                "state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING", "PAUSED"]}},
                "parent_task_run_id": {"is_null_": True},
            },
            "work_pools": {"name": {"any_": [POOL]}},
        }
        return [run["id"] for run in self.ask("/flow_runs/filter", wanted)]

    def ask(self, path: str, content: dict[str, Any] | None = None) -> Any:
        """What the server answers, to a POST with `content`; None when there is no such thing.

        Raises:
            InfrastructureFault: it does not answer.
        """
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.api}{path}", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise InfrastructureFault(f"Prefect's server refused {path}: {error}") from error
        except OSError as error:
            raise InfrastructureFault(f"Prefect's server does not answer: {error}") from error


def _say_once() -> Callable[[str], None]:
    told: list[str] = []

    def say(busy: str) -> None:
        if not told:
            told.append(busy)
            _console.print(f"waiting: {busy}", soft_wrap=True)

    return say


def _command(*options: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *options]


@contextmanager
def _signals() -> Iterator[None]:
    def asked(_number: int, _frame: FrameType | None) -> None:
        raise _Asked

    earlier = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
