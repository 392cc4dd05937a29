"""What of the file system a child may still reach: a Landlock ruleset.

See linux/landlock.h and man landlock(7). Every right that the running kernel knows is handled, that is, denied, and
then reading is granted below a list of paths. Nothing is granted for writing, except to devices such as /dev/null.
Landlock does not hinder changes of a file's mode, owner or times; the seccomp filter lets no such call through.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from .errors import LockdownError
from .kernel import no_new_privileges, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_LOG_NOTHING = 1
"""LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF: an attack that is refused is no news for the audit log. ABI 7."""

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file-system rights by ABI; they are the lowest bits."""
_NET_RIGHTS = 0b11
_SCOPES = 0b11
"""No connection to abstract sockets, no signals, to outside this domain."""


def version() -> int:
    """The kernel's Landlock ABI, 0 when there is none."""
    return max(0, syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION))


def create_ruleset(listable: Iterable[str], readable: Iterable[str], devices: Iterable[str]) -> int:
    """Make a ruleset.

    Args:
        listable: directories that may be listed, with all below them. Imports fail where they cannot list.
        readable: files that may be read, and directories all of whose files may be.
        devices: files that may be read and written.

    Returns:
        A descriptor for `restrict`. Paths that do not exist are passed over.

    Raises:
        LockdownError: the kernel has no Landlock, or refused.
    """
    abi = version()
    if abi < 1:
        raise LockdownError("this kernel has no Landlock")
    handled = [(1 << _FILE_RIGHTS[min(abi, 5)]) - 1]
    if abi >= 4:
        handled.append(_NET_RIGHTS)
    if abi >= 6:
        handled.append(_SCOPES)
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        raise LockdownError(f"landlock_create_ruleset: {os.strerror(ctypes.get_errno())}")
    for path in listable:
        _allow(ruleset, path, _READ_DIR)
    for path in readable:
        _allow(ruleset, path, _READ_FILE)
    for path in devices:
        _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if rights & _READ_DIR and not stat.S_ISDIR(os.fstat(handle).st_mode):
            return  # the kernel refuses a right on a file that only a directory can have
        rule = struct.pack("=Qi", rights, handle)
        if syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0) != 0:
            raise LockdownError(f"landlock_add_rule {path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def restrict(ruleset: int) -> None:
    """Put the calling thread, and all that it starts, under the ruleset for good.

    Raises:
        LockdownError: the kernel refused.
    """
    no_new_privileges()
    if syscall(_RESTRICT_SELF, ruleset, _LOG_NOTHING if version() >= 7 else 0) != 0:
        raise LockdownError(f"landlock_restrict_self: {os.strerror(ctypes.get_errno())}")
