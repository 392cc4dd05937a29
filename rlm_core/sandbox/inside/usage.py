"""What a child has used so far, as its zygote sees it while the child runs.

On Linux that is CPU time alone, because the kernel holds a child to its memory; on macOS it is both.
"""

import ctypes
import functools
import os
import struct
import sys
import time
from typing import Any

_RUSAGE_INFO_V0 = 0
_RUSAGE = struct.Struct("=16s10Q")
"""struct rusage_info_v0 in sys/resource.h: an identity, then user and system time, three counts, wired and resident
size, footprint, and two moments."""
_USER, _SYSTEM, _FOOTPRINT = 1, 2, 8
_TIMEBASE = struct.Struct("=2I")
"""struct mach_timebase_info in mach/mach_time.h: numerator and denominator."""
_NANOSECONDS = 1_000_000_000
_CTL_KERN, _KERN_PROCARGS2 = 1, 49


def look(process: int) -> tuple[float, float]:
    """CPU seconds, user and system, and MB of memory of a child; the memory is 0 where the kernel limits it.

    Raises:
        OSError: the process is gone.
    """
    return _look_on_macos(process) if sys.platform == "darwin" else (_cpu_s_on_linux(process), 0.0)


def _cpu_s_on_linux(process: int) -> float:
    """By the process's own clock; see man clock_getcpuclockid(3)."""
    return time.clock_gettime((~process << 3) | 2)


def _look_on_macos(process: int) -> tuple[float, float]:
    """By libproc. The footprint is what macOS itself holds against a process: unlike the resident size it counts pages
    that were compressed, and a candidate's pages full of zeros soon are."""
    buffer = ctypes.create_string_buffer(_RUSAGE.size)
    if libc().proc_pid_rusage(process, _RUSAGE_INFO_V0, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    fields = _RUSAGE.unpack(buffer.raw)
    return _seconds(fields[_USER] + fields[_SYSTEM], timebase()), fields[_FOOTPRINT] / (1 << 20)


def _seconds(ticks: int, base: tuple[int, int]) -> float:
    """Seconds in so many ticks of the Mach clock, of which Apple silicon has 24 million a second, not a billion."""
    numerator, denominator = base
    return ticks * numerator / denominator / _NANOSECONDS


@functools.cache
def timebase() -> tuple[int, int]:
    """Nanoseconds in a tick of the Mach clock, as a fraction: 125/3 on Apple silicon, 1/1 on Intel."""
    buffer = ctypes.create_string_buffer(_TIMEBASE.size)
    libc().mach_timebase_info(buffer)
    numerator, denominator = _TIMEBASE.unpack(buffer.raw)
    return numerator, denominator


def arguments_of(process: int) -> bytes:
    """Arguments and environment of a process of the same user, on macOS. A child must not be able to get them.

    Raises:
        OSError: the kernel refused.
    """
    name = (ctypes.c_int * 3)(_CTL_KERN, _KERN_PROCARGS2, process)
    buffer = ctypes.create_string_buffer(1 << 16)
    size = ctypes.c_size_t(len(buffer))
    if libc().sysctl(name, len(name), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer.raw[: size.value]


@functools.cache
def libc() -> Any:
    """The C library of macOS, which has the functions of libproc in it."""
    return ctypes.CDLL(None, use_errno=True)
