"""`rlm up`: Prefect's server with its UI, the deployments, a worker and, if wanted, an inference server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rlm_cli.guard import Guard
from rlm_cli.prefect_server import PREFECT, STARTUP_S, is_there, local_environment
from rlm_cli.services import Service, Services
from rlm_cli.terminal import plain_console
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
_WORKER = "the worker"
_LOOK_EVERY_S = 0.5
_CANCEL_S = 60.0
"""How long running iterations have to stop; the worker kills one that takes longer than half of it."""
_WAIT_FOR_HOME_S = 15.0
"""The guard of a command that was killed keeps its home until all is ended."""
_MODEL_S = 1_800.0
"""How long the inference server has: it may have to fetch its model first."""

_console = plain_console()


class _EndAsked(Exception):
    """A signal asked for the end."""


@dataclass(frozen=True)
class Inference:
    """Whose adapter is served beside the rest, and where."""

    config: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    def works(self) -> bool:
        return is_there(f"{self.url}/health")

    def command(self) -> list[str]:
        words = ["serve", "--config", str(self.config), "--host", _HOST, "--port", str(self.port)]
        return [sys.executable, "-m", "rlm_cli.main", *words]


def bring_up(port: int, home: Path | None, at_once: int, inference: Inference | None) -> None:
    """Start what is not there yet, say where the UI is, start again what dies, and end all on SIGINT or SIGTERM.

    A Prefect server that answers already is used and left as it is. When this process is killed, a guard ends the rest.

    Raises:
        UsageError: there are no deployments in this directory, or somebody has the inference server's port.
        Busy: another one has this home.
        InfrastructureFault: something did not start.
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
            guard = Guard(*home_lock.handles)
            started.callback(guard.end)
            machine = _Machine(f"{url}/api", local_environment() | own | guard.environment, logs)
            _start_prefect(machine, started, port)
            if inference:
                _start_inference(machine, started, inference)
            _start_worker(machine, started, at_once)
            _say(f"the UI is at {url}; logs are in {logs}; Ctrl-C ends it all")
            while True:
                machine.services.look_after()
                time.sleep(_LOOK_EVERY_S)
        except _EndAsked:
            _say("ending")


def _start_prefect(machine: "_Machine", started: ExitStack, port: int) -> None:
    if machine.answers():
        _say("using the server that is there already")
        return
    _say("starting the server")
    command = _prefect("server", "start", "--host", _HOST, "--port", str(port))
    service = Service(PREFECT, command, machine.log("server"), machine.answers, STARTUP_S)
    started.enter_context(machine.services.running(service))


def _start_inference(machine: "_Machine", started: ExitStack, inference: Inference) -> None:
    if inference.works():
        raise UsageError(f"--serve-port {inference.port}: a server is there already")
    _say(f"starting the inference server for {inference.config}")
    log = machine.log("inference")
    service = Service("the inference server", inference.command(), log, inference.works, _MODEL_S)
    started.enter_context(machine.services.running(service))
    _say(f"the inference server is at {inference.url}/v1")


def _start_worker(machine: "_Machine", started: ExitStack, at_once: int) -> None:
    if machine.ask(f"/work_pools/{POOL}") is None:
        machine.prefect("work-pool", "create", POOL, "--type", "process")
    machine.prefect("deploy", "--all")
    # One that is started again has the name of the one before, so that the two are not taken for two.
    name = f"rlm up, process {os.getpid()} of {socket.gethostname()}"
    command = _prefect("worker", "start", "--pool", POOL, "--name", name, "--limit", str(at_once))
    service = Service(_WORKER, command, machine.log("worker"), machine.has_worker, STARTUP_S)
    started.enter_context(machine.services.running(service))
    started.callback(machine.cancel_runs)


class _Machine:
    """Prefect's commands, and those of them that go on."""

    def __init__(self, api: str, environment: dict[str, str], logs: Path):
        self.api = api
        self.services = Services(environment, _say)
        self._environment = environment
        self._logs = logs

    def answers(self) -> bool:
        return is_there(f"{self.api}/health")

    def log(self, name: str) -> Path:
        return self._logs / f"rlm-up-{name}.log"

    def prefect(self, *words: str) -> None:
        """Raises InfrastructureFault when the command fails."""
        done = subprocess.run(
            _prefect("--no-prompt", *words),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = one_line(done.stderr + done.stdout)[-300:]
            raise InfrastructureFault(f"prefect {' '.join(words)} failed: {said}")

    def has_worker(self) -> bool:
        return bool(self._online())

    def cancel_runs(self) -> None:
        """Let the worker stop what it has at work, so that no run seems to go on for ever.

        Runs do not say whose they are, so nothing is cancelled when the pool has other workers. Nothing can be when
        server or worker have ended.
        """
        if not self.services.all_work() or len(self._online()) > 1:
            return
        running = self._at_work()
        for run in running:
            state = {"state": {"type": "CANCELLING", "message": "rlm up was ended"}}
            self.ask(f"/flow_runs/{run}/set_state", state)
        if running:
            _say(f"stopping {len(running)} running at the moment; the next run continues them")
        deadline = time.monotonic() + _CANCEL_S
        while time.monotonic() < deadline and self._at_work():
            time.sleep(_LOOK_EVERY_S)

    def _online(self) -> list[Any]:
        return list(self.ask(f"/work_pools/{POOL}/workers/filter", {"workers": {"status": {"any_": ["ONLINE"]}}}))

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
            _say(f"waiting: {busy}")

    return say


def _prefect(*words: str) -> list[str]:
    return [sys.executable, "-m", "prefect", *words]


def _say(what: str) -> None:
    _console.print(what, soft_wrap=True)


@contextmanager
def _signals() -> Iterator[None]:
    def asked(_number: int, _frame: FrameType | None) -> None:
        raise _EndAsked

    earlier = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
