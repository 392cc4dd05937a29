"""The code of the macOS sandbox, run on Linux: in a whole zygote with stand-ins for macOS, and part by part with fakes.

That macOS does what the stand-ins and the fakes do is an assumption; see docs/sandbox.md.
"""

import ctypes
import os
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_core.problems import Problem
from rlm_core.sandbox import Limits, Sandbox
from rlm_core.sandbox.backends import BACKENDS, Backend, Launch, seatbelt
from rlm_core.sandbox.child import Child
from rlm_core.sandbox.connection import Deadline, Outgrown
from rlm_core.sandbox.inside import lockdown, rlimits, usage, watch, wire
from rlm_core.sandbox.inside import macos as macos_module
from rlm_core.sandbox.inside import seatbelt as profiles
from rlm_core.sandbox.inside.errors import LockdownError
from rlm_core.sandbox.interpreter import INSIDE, Interpreter
from rlm_core.sandbox.session import CpuDeadline, Session
from rlm_core.sandbox.zygote import End, ZygoteFault
from rlm_core.verifiers.cases import judge_cases

from . import stand_ins
from .conftest import PATIENT, needs_landlock, processes_of_session, wait_until

HOG = "kept = []\ndef solve(n):\n    while True: kept.append(bytearray(1 << 20))\n"
HOG_IN_SLICES = "kept = []\ndef solve(n):\n    kept.append(bytearray(60 << 20))\n    return 1\n"
RIGHT = "import math\nsolve = math.factorial\n"
LIMITS = PATIENT.model_copy(update={"memory_mb": 128})


def backend_with_stand_ins(directory: Path) -> Backend:
    """The landlock backend's interpreter with the macOS code, which finds itself on something like macOS."""
    inside = directory / "inside"
    shutil.copytree(INSIDE, inside)
    shutil.copy(stand_ins.__file__, inside)
    with (inside / "__init__.py").open("a") as file:
        file.write("\nfrom inside import stand_ins\n\nstand_ins.install()\n")
    landlocked = next(backend for backend in BACKENDS if backend.name == "landlock")

    def launch(interpreter: Interpreter) -> Launch:
        return replace(landlocked.launch(interpreter), directory=directory, real_pids=True, polls_memory=True)

    return Backend("macos", "seatbelt", landlocked.missing, launch)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(backend_with_stand_ins(tmp_path), LIMITS, hash_seed=0) as sandbox:
        yield sandbox


# ------------------------------------------------------------------------------------------------------ the whole of it


@needs_landlock
def test_the_zygote_of_macos_serves_jobs(sandbox: Sandbox, factorial: Problem) -> None:
    assert judge_cases(sandbox, RIGHT, factorial).status == "passed"
    assert judge_cases(sandbox, "def solve(n): return 0", factorial).status == "failed"
    opens = judge_cases(sandbox, f"open({__file__!r})", factorial)
    assert "PermissionError" in opens.reason


@needs_landlock
def test_a_restriction_that_does_nothing_is_noticed_on_macos_too(tmp_path: Path) -> None:
    backend = backend_with_stand_ins(tmp_path)
    copied = tmp_path / "inside" / "macos.py"
    copied.write_text(copied.read_text().replace("seatbelt.restrict(", "len((0,)) or ("))
    with pytest.raises(Exception, match=r"inside it, reading a file, .*starting a process.* possible"):
        Sandbox(backend, LIMITS, hash_seed=0)


@needs_landlock
@pytest.mark.parametrize("code", [HOG, HOG_IN_SLICES])
def test_memory_that_no_kernel_limits_is_limited_by_looking(sandbox: Sandbox, factorial: Problem, code: str) -> None:
    """Also when each request by itself takes little and is over soon."""
    judgement = judge_cases(sandbox, code, factorial)
    outcomes = [case.outcome for case in judgement.cases]
    assert "crashed" in outcomes
    assert judgement.cases[outcomes.index("crashed")].detail == "it used more than 128 MB of memory"


@needs_landlock
def test_cpu_time_is_counted_in_seconds_on_macos_too(sandbox: Sandbox, factorial: Problem) -> None:
    started = time.monotonic()
    judgement = judge_cases(sandbox, "def solve(n):\n    while True: pass", factorial)
    assert {case.outcome for case in judgement.cases} == {"timeout", "not_run"}
    assert time.monotonic() - started < 10 * LIMITS.case_s * LIMITS.patience


@needs_landlock
def test_children_end_with_their_zygote_without_the_kernels_help(sandbox: Sandbox) -> None:
    zygote = sandbox._zygotes.code
    zygote.fork()
    assert len(processes_of_session(zygote.pid)) == 2
    os.kill(zygote.pid, signal.SIGKILL)  # it alone, not its group
    assert wait_until(lambda: not processes_of_session(zygote.pid))


@needs_landlock
def test_a_child_that_left_its_group_and_stopped_watching_is_killed_by_the_parent(tmp_path: Path) -> None:
    """On macOS nothing hinders a child from that."""
    backend = backend_with_stand_ins(tmp_path)
    copied = tmp_path / "inside" / "macos.py"
    code = copied.read_text().replace("zygote.end_this_process_too()", "pass")
    copied.write_text(code.replace("os.umask(0o077)", "os.setsid()"))
    with Sandbox(backend, LIMITS, hash_seed=0) as sandbox:
        zygote = sandbox._zygotes.code
        child = zygote.fork()
        busy = {"nonce": "", "do": "load", "code": "import time\nwhile True: time.sleep(1)", "entry_point": "solve"}
        child.connection.send(wire.frame(busy), Deadline(1))  # so that it does not notice that we hang up
        os.kill(zygote.pid, signal.SIGKILL)
        time.sleep(0.1)
        try:
            assert processes_of_session(child.pid) == {child.pid}, "it should be on its own by now"
            zygote.close()
            assert wait_until(lambda: not processes_of_session(child.pid))
        finally:
            for left in processes_of_session(child.pid):
                os.kill(left, signal.SIGKILL)


@needs_landlock
def test_a_child_that_was_ended_is_not_killed_again(sandbox: Sandbox) -> None:
    """Its id may belong to another process by then."""
    zygote = sandbox._zygotes.code
    child = zygote.fork()
    assert zygote._real_pids == {child.pid}
    zygote.end(child)
    assert zygote._real_pids == set()


@needs_landlock
@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_an_id_that_stands_for_more_than_one_process_is_nonsense(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    """To kill it would kill whatever this user runs."""
    zygote = sandbox._zygotes.code
    monkeypatch.setattr(zygote, "_ask", lambda *_arguments, **_more: {"pid": pid})
    with pytest.raises(ZygoteFault, match="nonsense"):
        zygote.fork()
    assert zygote._real_pids == set()


# ------------------------------------------------------------------------------------------------------- the platform


on_macos = pytest.mark.usefixtures("macos")


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


def test_seatbelt_needs_macos() -> None:
    if sys.platform == "darwin":
        pytest.skip("this is one")
    assert seatbelt.BACKEND.missing() == "it needs macOS"


@on_macos
def test_root_is_refused_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "ordinary user" in str(seatbelt.BACKEND.missing())


@on_macos
def test_a_macos_without_the_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    profiles.library.cache_clear()
    if not Path("/usr/lib/dyld").exists():
        assert "libsandbox.1.dylib cannot be used" in str(seatbelt.BACKEND.missing())


@on_macos
def test_the_kinds_of_linux_need_linux() -> None:
    for name in ("bubblewrap", "landlock"):
        backend = next(backend for backend in BACKENDS if backend.name == name)
        assert backend.missing() == "it needs Linux"


def test_a_launch_on_macos_keeps_the_user_and_watches_the_memory() -> None:
    interpreter = Interpreter(Path("/py/bin/python3"), (Path("/py/lib"),), ())
    launch = seatbelt.BACKEND.launch(interpreter)
    assert launch.command == ("/py/bin/python3",)
    assert launch.user is None
    assert launch.real_pids and launch.polls_memory and not launch.count_threads


MACOS_LIMITS = {"CPU": 0, "FSIZE": 1, "DATA": 2, "STACK": 3, "CORE": 4, "AS": 5, "RSS": 5, "MEMLOCK": 6, "NPROC": 7,
                "NOFILE": 8}  # fmt: skip
"""RLIMIT_* in macOS's sys/resource.h."""


@on_macos
def test_only_limits_that_macos_can_keep_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among those that it has, it refuses the address space and may refuse the stack."""
    made: dict[int, tuple[int, int]] = {}
    unlimited = resource.RLIM_INFINITY
    fake = SimpleNamespace(
        RLIM_INFINITY=unlimited,
        getrlimit=lambda _kind: (unlimited, unlimited),
        setrlimit=made.__setitem__,
        **{f"RLIMIT_{name}": number for name, number in MACOS_LIMITS.items()},
    )
    monkeypatch.setattr(rlimits, "resource", fake)
    rlimits.limit_resources(Limits(cpu_s=7, file_mb=2, open_files=33).model_dump() | {"threads": None})
    names = {number: name for name, number in MACOS_LIMITS.items()}
    assert {names[kind]: pair for kind, pair in made.items()} == {
        "CORE": (0, 0),
        "CPU": (7, 8),
        "FSIZE": (2 << 20, 2 << 20),
        "NOFILE": (33, 33),
        "MEMLOCK": (0, 0),
    }


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a lockdown on macOS does, in order, none of it for real."""
    done: list[str] = []

    class Exit:
        def __init__(self, process: int) -> None:
            done.append(f"watch {process}")

        def end_this_process_too(self) -> None:
            done.append("wait in a thread")

    monkeypatch.setattr(os, "umask", lambda mask: done.append(f"umask {mask:o}"))
    monkeypatch.setattr(os, "chdir", lambda path: done.append(f"chdir {path}"))
    monkeypatch.setattr(rlimits, "limit_resources", lambda _limits: done.append("limit"))
    monkeypatch.setattr(watch, "Exit", Exit)
    monkeypatch.setattr(profiles, "compile_profile", lambda _rules: 0x7FFF12345678)
    monkeypatch.setattr(profiles, "restrict", lambda compiled: done.append(f"restrict {compiled:x}"))
    return done


@on_macos
def test_a_child_of_macos_watches_then_limits_then_restricts(steps: list[str]) -> None:
    prepared = lockdown.prepare({"limits": {}})
    assert isinstance(prepared, macos_module.MacLockdown)
    assert prepared.descriptor is None
    prepared.apply(5, os.getppid())
    watching = f"watch {os.getppid()}"
    assert steps == ["umask 77", "chdir /", watching, "limit", "restrict 7fff12345678", "wait in a thread"]


@on_macos
def test_a_child_of_macos_whose_zygote_is_gone_does_not_go_on(steps: list[str]) -> None:
    with pytest.raises(LockdownError, match="parent process is gone"):
        lockdown.prepare({"limits": {}}).apply(5, 1 << 22)
    assert not any(step.startswith("restrict") for step in steps)


# ---------------------------------------------------------------------------------------------------------- the watch


class Queue:
    """A kqueue that gives what it was told to give."""

    def __init__(self) -> None:
        self.changes: list[Any] = []
        self.pending: list[Any] = []
        self.error: OSError | None = None

    def control(self, changes: list[Any] | None, most: int, _timeout: float | None = None) -> list[Any]:
        if self.error is not None:
            raise self.error
        self.changes += changes or ()
        return self.pending[:most]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(sys, "platform", "darwin")
    fake = SimpleNamespace(
        kqueue=lambda: queue,
        kevent=lambda *fields: SimpleNamespace(
            **dict(zip(("ident", "filter", "flags", "fflags"), fields, strict=False))
        ),
        KQ_FILTER_READ=-1,
        KQ_FILTER_PROC=-5,
        KQ_EV_ADD=1,
        KQ_NOTE_EXIT=1 << 31,
    )
    monkeypatch.setattr(watch, "select", fake)
    return queue


def test_a_zygote_of_macos_watches_its_owner_beside_the_control_socket(queue: Queue) -> None:
    control: Any = SimpleNamespace(fileno=lambda: 9)
    owner = watch.owner(control, [], 4321)
    assert [(change.ident, change.filter) for change in queue.changes] == [(9, -1), (4321, -5)]
    assert queue.changes[1].fflags == 1 << 31
    request, end = queue.changes
    queue.pending = [request]
    assert owner.request_came()
    queue.pending = [request, end]  # both at once: nobody waits for an answer any more
    assert not owner.request_came()


def test_a_child_of_macos_ends_when_its_zygote_does(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    child = watch.Exit(4321)
    assert [(change.ident, change.filter) for change in queue.changes] == [(4321, -5)]
    child.end_this_process_too()
    assert wait_until(lambda: ended == [1])


def test_a_child_of_macos_ends_when_its_queue_is_closed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    child = watch.Exit(4321)
    queue.error = OSError(9, "Bad file descriptor")
    with pytest.raises(OSError, match="Bad file"):  # as good as gone: the real _exit does not return
        child._wait()
    assert ended == [1]


def test_a_zygote_that_is_gone_before_it_is_watched_is_noticed(queue: Queue) -> None:
    queue.error = ProcessLookupError(3, "No such process")
    with pytest.raises(LockdownError, match="cannot watch the parent process: No such process"):
        watch.Exit(4321)


# ------------------------------------------------------------------------------------------------------------ the usage


class RusageInfoV0(ctypes.Structure):
    """struct rusage_info_v0, as macOS's sys/resource.h declares it."""

    _fields_ = [("ri_uuid", ctypes.c_uint8 * 16)] + [
        (f"ri_{name}", ctypes.c_uint64)
        for name in ("user_time", "system_time", "pkg_idle_wkups", "interrupt_wkups", "pageins", "wired_size",
                     "resident_size", "phys_footprint", "proc_start_abstime", "proc_exit_abstime")
    ]  # fmt: skip


RUSAGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, use_errno=True)
TIMEBASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """C functions with the types of macOS's: arguments go through the foreign function interface."""
    monkeypatch.setattr(sys, "platform", "darwin")
    fake = SimpleNamespace(info=RusageInfoV0(), asked=[], result=0)

    def rusage(process: int, flavor: int, address: int) -> int:
        fake.asked.append((process, flavor))
        ctypes.memmove(address, ctypes.addressof(fake.info), ctypes.sizeof(fake.info))
        ctypes.set_errno(3)
        return int(fake.result)

    def timebase(address: int) -> int:
        ctypes.memmove(address, (ctypes.c_uint32 * 2)(125, 3), 8)
        return 0

    fake.proc_pid_rusage, fake.mach_timebase_info = RUSAGE(rusage), TIMEBASE(timebase)
    monkeypatch.setattr(usage, "libc", lambda: fake)
    usage.timebase.cache_clear()
    yield fake
    usage.timebase.cache_clear()


def test_the_usage_is_read_by_the_layout_of_apples_header(libc: SimpleNamespace) -> None:
    assert ctypes.sizeof(RusageInfoV0) == usage._RUSAGE.size == 96
    libc.info.ri_user_time, libc.info.ri_system_time = 36_000_000, 12_000_000
    libc.info.ri_resident_size, libc.info.ri_phys_footprint = 1 << 20, 300 << 20
    assert usage.look(77) == (2.0, 300.0)
    assert libc.asked == [(77, 0)]


def test_a_process_that_is_gone_is_an_error(libc: SimpleNamespace) -> None:
    libc.result = -1
    with pytest.raises(ProcessLookupError):
        usage.look(77)


@pytest.mark.parametrize(
    ("ticks", "base", "seconds"),
    [
        (24_000_000, (125, 3), 1.0),  # Apple silicon: 24 MHz
        (1_000_000_000, (1, 1), 1.0),  # Intel, and programs for it on Apple silicon
        (3 * 86_400 * 24_000_000, (125, 3), 259_200.0),  # three days, without loss
        (0, (125, 3), 0.0),
    ],
)
def test_ticks_of_the_mach_clock_become_seconds(ticks: int, base: tuple[int, int], seconds: float) -> None:
    assert usage._seconds(ticks, base) == seconds


def test_linux_is_asked_for_cpu_time_alone() -> None:
    if sys.platform == "darwin":
        pytest.skip("not Linux")
    before = time.process_time()
    cpu_s, memory_mb = usage.look(os.getpid())
    assert before <= cpu_s <= time.process_time()
    assert memory_mb == 0.0


# ----------------------------------------------------------------------------------------------------------- the memory


def test_a_deadline_that_watches_memory_looks_at_once_and_often() -> None:
    looks: list[float] = []

    def used_so_far() -> float:
        looks.append(time.monotonic())
        return 0.0

    deadline = CpuDeadline(used_so_far, cpu_s=5, backstop_s=20, look_s=0.02)
    assert 0 < deadline.left_s() < 0.021
    assert len(looks) == 1
    time.sleep(0.02)
    deadline.left_s()
    assert len(looks) == 2


def test_a_deadline_that_need_not_watch_memory_looks_as_seldom_as_before() -> None:
    looks: list[float] = []

    def used_so_far() -> float:
        looks.append(time.monotonic())
        return 0.0

    deadline = CpuDeadline(used_so_far, cpu_s=5, backstop_s=20)
    deadline.left_s()
    assert looks == []
    time.sleep(0.021)
    assert deadline.left_s() > 4
    assert len(looks) == 1


def test_a_child_that_has_outgrown_its_memory_crashed_for_that_reason() -> None:
    """And is not blamed for sleeping, which would shorten the patience with what follows."""
    zygote: Any = FakeZygote()
    session = Session(zygote, "code", "solve")
    answer = session.load()
    assert (answer.kind, answer.payload) == ("crashed", "it used more than 1024 MB of memory")
    assert session._patience == zygote.limits.patience
    assert zygote.ended


class FakeZygote:
    """Whose children answer nothing and have too much memory."""

    limits = Limits()
    polls_memory = True
    ended = False

    def fork(self) -> Any:
        ours, self.theirs = socket.socketpair()
        return Child(ours, 4321, self.limits)

    def cpu_s(self, _child: Any) -> float:
        raise Outgrown("it used more than 1024 MB of memory")

    def end(self, child: Any) -> Any:
        child.connection.close()
        self.theirs.close()
        self.ended = True
        return End(-9, 0.1, 2000.0)
