"""The few calls of the Linux kernel that Python has no function for, through ctypes."""

import ctypes
import os
import struct
from typing import Any

from .errors import LockdownError

LIBC = ctypes.CDLL(None, use_errno=True)
"""Functions are looked up when they are called: this module is imported on macOS too, which has not all of them."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 1, 4, 8, 38
_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_READ_SEARCH = 2


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call by number; -1 and `ctypes.get_errno()` on failure.

    Python integers are passed as 64 bits: a variadic C function would otherwise see 32 and stack rubbish beside them.
    """
    wide = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    LIBC.syscall.restype = ctypes.c_long
    return int(LIBC.syscall(ctypes.c_long(number), *wide))


def _prctl(name: str, option: int, value: int) -> None:
    if LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise LockdownError(f"{name}: {os.strerror(ctypes.get_errno())}")


def no_new_privileges() -> None:
    """No program started from here on can gain privileges; Landlock and seccomp ask for this first."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def not_dumpable() -> None:
    """No core dumps, and no other process of the same user may trace this one or read its memory."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int, signal: int) -> None:
    """Have `signal` sent to this process when the thread that forked it ends.

    The kernel forgets the setting when the user id changes, so it has to be made after that.

    Raises:
        LockdownError: the kernel refuses, or that thread has ended already.
    """
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal)
    if os.getppid() != parent:
        raise LockdownError("the parent process is gone")


def become_user(user: int, keep_read_access: bool) -> None:
    """Stop being root, for good.

    Args:
        user: the user and group id to become.
        keep_read_access: keep the one capability to read and search whatever the file permissions say. It is needed
            when the interpreter is installed below a directory that only root may enter, and leaves it to Landlock
            alone to say what can be read.

    Raises:
        LockdownError: the kernel refused.
    """
    try:
        os.setgroups([])
        if keep_read_access:
            _prctl("PR_SET_KEEPCAPS", _PR_SET_KEEPCAPS, 1)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError as error:
        raise LockdownError(f"cannot become user {user}: {error.strerror}") from error
    keep_capabilities(1 << CAP_DAC_READ_SEARCH if keep_read_access else 0)


def keep_capabilities(mask: int) -> None:
    """Give up all capabilities but those whose bits are set in `mask`, for good.

    Raises:
        LockdownError: the kernel refuses.
    """
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("=6I", mask, mask, 0, 0, 0, 0)  # effective, permitted, inheritable; twice for bits 32 to 63
    if LIBC.capset(header, data) != 0:
        raise LockdownError(f"capset: {os.strerror(ctypes.get_errno())}")
