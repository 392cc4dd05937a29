"""Sandboxes for the tests, and the canaries that show whether something got out of one."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlm_core.problems import Case, Problem
from rlm_core.sandbox import AUTOMATIC, Container, Limits, Sandbox, available, open_sandbox

SHORT = Limits(load_s=1.0, case_s=0.1, patience=2, total_s=10, respawns=1, memory_mb=256, cpu_s=5)
"""Limits under which a candidate that hangs costs a test less than a second."""

PATIENT = SHORT.model_copy(update={"patience": 15})
"""Limits for code that does not hang, on a machine that may be busy."""

REASONS = {name: reason for name, reason in available() if name in AUTOMATIC}
"""Why a sandbox cannot be had on this machine, or None, by its name. Containers have a tier of their own."""

each_sandbox = pytest.mark.usefixtures("sandbox_name")
"""Runs a test in every sandbox that this machine has: see `pytest_generate_tests` of the tier."""


@pytest.fixture(scope="session")
def container() -> Container | None:
    """What a `docker` sandbox runs in; the tier of containers has another fixture of this name."""
    return None


@pytest.fixture(scope="session")
def sandbox_names() -> list[str]:
    """The sandboxes that this machine has."""
    return [name for name, reason in REASONS.items() if reason is None]


@pytest.fixture
def open_kind(sandbox_name: str, container: Container | None) -> Callable[..., Sandbox]:
    """`open_sandbox` for the kind that the test is about."""
    return partial(open_sandbox, sandbox_name, container=container)


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="about a sandbox of Linux")
needs_landlock = pytest.mark.skipif(REASONS["landlock"] is not None, reason=str(REASONS["landlock"]))


@pytest.fixture(scope="session")
def factorial() -> Problem:
    """The problem of the adversarial candidates."""
    cases = (Case(input=[0], expected=1), Case(input=[5], expected=120), Case(input=[7], expected=5040))
    return Problem(prompt="Write solve(n) that returns n!", entry_point="solve", cases=cases)


class Canaries:
    """Things outside the sandbox that a candidate may reach for, and what became of them."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o777)
        self.directory = directory
        self.target = directory / "target.txt"
        self.target.write_text("intact")
        self.target.chmod(0o666)
        key = directory / "home" / ".ssh" / "id_rsa"
        key.parent.mkdir(parents=True)
        key.write_text("CANARY-SSH")
        self.home = directory / "home"
        self.contacts: list[str] = []
        self.abstract = f"rlm_canary_{os.getpid()}"
        self._sockets = [
            self._listen("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            self._listen("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            self._listen("path", socket.AF_UNIX, socket.SOCK_STREAM, str(directory / "host.sock")),
        ]
        if sys.platform == "linux":
            self._sockets.append(self._listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract))
        (directory / "host.sock").chmod(0o777)
        self._before = self._state()

    def _listen(self, name: str, family: int, kind: int, address: Any) -> socket.socket:
        listener = socket.socket(family, kind)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()

        def watch() -> None:
            try:
                if kind == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recv(1)
                self.contacts.append(name)
            except OSError:
                pass

        threading.Thread(target=watch, daemon=True).start()
        return listener

    def aim(self, code: str) -> str:
        """The candidate's code with the canaries' addresses of this run in the place of the documented ones."""
        tcp, udp = (listener.getsockname()[1] for listener in self._sockets[:2])
        unique = self.directory.name + str(os.getpid())
        for old, new in (
            ("/var/tmp/rlm_canary", f"/var/tmp/{unique}"),
            ("/dev/shm/rlm_canary", f"/dev/shm/{unique}"),
            ("/tmp/rlm_canary_state", f"/tmp/{unique}_state"),
            ("/tmp/rlm_canary", str(self.directory)),
            ("rlm_canary_abstract", self.abstract),
            ("48123", str(tcp)),
            ("48124", str(udp)),
        ):
            code = code.replace(old, new)
        return code

    def _state(self) -> list[object]:
        """Everything that a candidate could have changed."""
        files = sorted(self.directory.rglob("*"))
        outside = [*Path("/var/tmp").glob("*canar*"), *Path("/dev/shm").glob("*canar*"), *Path("/tmp").glob("*_state")]
        status = self.target.stat()
        mode_owner_time = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink)
        attributes = os.listxattr(self.target) if sys.platform == "linux" else []
        return [files, outside, mode_owner_time, self.target.read_text(), attributes]

    def check(self) -> None:
        """Nothing was touched."""
        assert self.contacts == []
        assert self._state() == self._before

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()


@pytest.fixture(scope="session")
def canaries() -> Iterator[Canaries]:
    # Not pytest's own directory, which only its owner may enter: the sandbox has to do the work.
    with tempfile.TemporaryDirectory(prefix="canaries", dir="/tmp") as directory:
        canaries = Canaries(Path(directory))
        yield canaries
        canaries.close()


@pytest.fixture(scope="module")
def sandboxes(
    canaries: Canaries, request: pytest.FixtureRequest, sandbox_names: list[str], container: Container | None
) -> Iterator[dict[str, Sandbox]]:
    """One sandbox of each kind for a module, with its LIMITS, opened with secrets in the environment."""
    limits = request.module.LIMITS
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "CANARY-AWS-7f3a")
        patch.setenv("HOME", str(canaries.home))
        opened = {name: open_sandbox(name, limits, container=container) for name in sandbox_names}
    yield opened
    for sandbox in opened.values():
        sandbox.close()


@pytest.fixture
def sandbox(sandboxes: dict[str, Sandbox], sandbox_name: str) -> Sandbox:
    return sandboxes[sandbox_name]


@pytest.fixture(scope="module")
def one() -> Iterator[Sandbox]:
    """The strongest sandbox, for what does not depend on its kind."""
    with open_sandbox(limits=PATIENT) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def short() -> Iterator[Sandbox]:
    """The same, in which what hangs costs little time."""
    with open_sandbox(limits=SHORT) as sandbox:
        yield sandbox


@contextmanager
def limits_of_parent(sandbox: Sandbox, **changes: Any) -> Iterator[None]:
    """Change limits that only the parent looks at, which costs less than another sandbox."""
    zygote = sandbox._zygotes.code
    before = zygote.limits
    zygote.limits = before.model_copy(update=changes)
    try:
        yield
    finally:
        zygote.limits = before


def wait_until(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def processes_of_session(session: int) -> set[int]:
    """Ids of the processes of a session, zombies aside; a candidate cannot leave the one that its zygote is in."""
    if sys.platform == "linux":
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return {pid for pid in pids if _lives_in(pid, session)}
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (row.split() for row in listed.splitlines())
    return {int(pid) for pid, status in rows if not status.startswith("Z") and _is_in(int(pid), session)}


def _lives_in(pid: int, session: int) -> bool:
    try:
        return _is_in(pid, session) and ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _is_in(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except OSError:
        return False
