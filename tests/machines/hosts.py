"""Hosts with addresses of their own on one switch, made of network namespaces; and the shells of their users."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.served.machine import ROOT

NAMES = "abcd"
NETWORK = "10.10.0"
_PROGRAMS = {"prefect": ["-m", "prefect", "--no-prompt"], "rlm": ["-m", "rlm_cli.main"], "dask": ["-m", "dask"]}
_END_S = 20


def cannot_be_made() -> str | None:
    """Why there cannot be such hosts here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and the command ip"
    probe = f"rlm-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    ip("netns", "delete", probe)
    return None


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """Runs a page's commands as a person does on this host: what is exported stays, as does the directory."""

    def __init__(self, namespace: str, name: str, shared: Path, scratch: Path):
        self.name, self._namespace = name, namespace
        self._shared = shared
        self._home = scratch / name
        self._home.mkdir()
        self._directory = Path("/")
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "RLM_"))},
            "PREFECT_HOME": str(self._home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_PREFETCH_SECONDS": "2",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        }
        self._going_on: list[subprocess.Popen[bytes]] = []

    def export(self, assignment: str) -> None:
        name, _, value = assignment.partition("=")
        self._environment[name] = value

    def enter(self, directory: str) -> None:
        self._directory = Path(directory)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """A command that goes on until the host is shut down, or ends by itself."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._words(command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A worker ends by SIGINT, which is ignored by what a shell has started in the background.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._going_on.append(process)
        return process

    def follow(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(command),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def _words(self, command: str) -> list[str]:
        """`ip netns exec` gives the command mounts of its own: /srv is the shared directory for it alone."""
        program, *rest = command.split()
        words = [sys.executable, *_PROGRAMS[program]] if program in _PROGRAMS else [program]
        script = 'mount --bind "$1" /srv && cd "$2" && shift 2 && exec "$@"'
        inside = ["sh", "-c", script, "sh", str(self._shared), str(self._directory), *words, *rest]
        return ["ip", "netns", "exec", self._namespace, *inside]

    @property
    def log(self) -> Path:
        """What its commands that go on have said."""
        return self._home / "log"

    def shut_down(self) -> None:
        """End what runs there, politely at first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _END_S
            for process in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            while self._processes() and time.monotonic() < deadline:
                time.sleep(0.1)
                for started in self._going_on:
                    started.poll()
        for started in self._going_on:
            started.wait()

    def _processes(self) -> list[int]:
        listed = subprocess.run(["ip", "netns", "pids", self._namespace], capture_output=True, text=True, check=True)
        return [int(number) for number in listed.stdout.split()]


class Switch:
    """What the hosts are plugged into; it is in a namespace, too, so that this machine has no part in it."""

    def __init__(self) -> None:
        self._prefix = f"rlm-{secrets.token_hex(3)}"
        self._made: list[str] = []
        self._own = self._add("switch")
        self._ip("link", "add", "name", "bridge", "type", "bridge")
        self._ip("link", "set", "dev", "bridge", "up")

    def _add(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        ip("netns", "add", namespace)
        self._made.append(namespace)
        return namespace

    def _ip(self, *words: str) -> None:
        ip("-n", self._own, *words)

    def plug_in(self, name: str, address: str) -> str:
        """The namespace of a host that has this address."""
        host, port = self._add(name), f"port-{name}"
        self._ip("link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        self._ip("link", "set", "dev", port, "master", "bridge", "up")
        ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host, "link", "set", "dev", device, "up")
        return host

    @contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """A host without its cable."""
        self._ip("link", "set", "dev", f"port-{name}", "down")
        try:
            yield
        finally:
            self._ip("link", "set", "dev", f"port-{name}", "up")

    def remove(self) -> None:
        for namespace in self._made:
            ip("netns", "delete", namespace)


@contextmanager
def hosts(shared: Path, scratch: Path) -> Iterator[tuple[Switch, dict[str, Host]]]:
    """Hosts a, b, … at 10.10.0.1 and on, to all of which `shared` is /srv; nothing of them is left after the block."""
    switch = Switch()
    made: dict[str, Host] = {}
    try:
        for number, name in enumerate(NAMES, 1):
            made[name] = Host(switch.plug_in(name, f"{NETWORK}.{number}"), name, shared, scratch)
        yield switch, made
    finally:
        for host in reversed(made.values()):
            host.shut_down()
        switch.remove()
