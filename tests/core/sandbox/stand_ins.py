"""What macOS would do, done by Linux: so that all that is ours of the Seatbelt sandbox runs for real on Linux.

`install` is called in the zygote, before anything else of the copied package is used. A kqueue becomes poll with
pidfds, libproc becomes /proc, and Seatbelt becomes Landlock and seccomp with the paths that the profile was given.
Whether macOS does as these do, no test here can say.
"""

import ctypes
import errno
import os
import select
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TICKS_A_SECOND = 24_000_000
READ, PROCESS = -1, -5
"""EVFILT_READ and EVFILT_PROC in sys/event.h."""


class Event:
    def __init__(self, ident: int, filter: int, flags: int = 0, fflags: int = 0) -> None:
        self.ident, self.filter, self.flags, self.fflags = ident, filter, flags, fflags


class Kqueue:
    """One that tells of readable descriptors and of processes that ended."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._events: dict[int, Event] = {}

    def control(self, changes: list[Event] | None, most: int, _timeout: float | None = None) -> list[Event]:
        for event in changes or ():
            descriptor = os.pidfd_open(event.ident) if event.filter == PROCESS else event.ident
            self._events[descriptor] = event
            self._poller.register(descriptor, select.POLLIN)
        return [self._events[descriptor] for descriptor, _ in self._poller.poll()][:most] if most else []


class Libc:
    """The functions of macOS's C library that are used."""

    def proc_pid_rusage(self, process: int, flavor: int, buffer: Any) -> int:
        assert flavor == 0
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        user, system = (int(ticks) * TICKS_A_SECOND // os.sysconf("SC_CLK_TCK") for ticks in fields[11:13])
        footprint = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        buffer.raw = struct.pack("=16s10Q", b"", user, system, 0, 0, 0, 0, footprint, footprint, 0, 0)
        return 0

    def mach_timebase_info(self, buffer: Any) -> int:
        buffer.raw = struct.pack("=2I", 125, 3)
        return 0

    def sysctl(self, *_arguments: Any) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1


class Libsandbox:
    """The functions of Seatbelt's library that are used; it trusts the parameters and does not read the profile."""

    def __init__(self, landlock: Any, seccomp: Any) -> None:
        self._landlock, self._seccomp = landlock, seccomp
        self._parameters: dict[str, str] = {}

    def sandbox_create_params(self) -> int:
        return 1

    def sandbox_set_param(self, _handle: int, name: bytes, value: bytes) -> int:
        self._parameters[name.decode()] = os.fsdecode(value)
        return 0

    def sandbox_free_params(self, _handle: int) -> None:
        pass

    def sandbox_compile_string(self, _text: bytes, _handle: int, _message: Any) -> int:
        return 1

    def sandbox_apply(self, _compiled: int) -> int:
        kinds = ("LISTABLE", "READABLE", "DEVICE")
        paths = ([path for name, path in self._parameters.items() if name.startswith(kind)] for kind in kinds)
        self._landlock.restrict(self._landlock.create_ruleset(*paths))
        self._seccomp.restrict()
        return 0


def install() -> None:
    """Make this zygote believe that it is on macOS."""
    sys.platform = "darwin"
    from inside import landlock, seatbelt, seccomp, usage, watch  # type: ignore[import-not-found]

    libsandbox = Libsandbox(landlock, seccomp)
    seatbelt.library = lambda: libsandbox
    usage.libc = Libc
    watch.select = SimpleNamespace(
        kqueue=Kqueue, kevent=Event, KQ_FILTER_READ=READ, KQ_FILTER_PROC=PROCESS, KQ_EV_ADD=1, KQ_NOTE_EXIT=1 << 31
    )
