"""What a child on macOS may still reach: a Seatbelt profile, compiled by the zygote, applied by each child to itself.

Apple documents neither the language nor the functions; docs/sandbox.md says what this rests on, and that it has never
been run. Three rules of the language matter here. What no rule allows is denied, except for a few operations that have
to be denied by name. Of the rules for a path the last one that matches decides. A rule about one operation beats a rule
about a whole family of them, wherever it stands.
"""

import ctypes
import functools
import os
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from .errors import LockdownError

_LIBRARY = "/usr/lib/libsandbox.1.dylib"
"""There is no such file since macOS 11: the dynamic linker finds it in its shared cache."""
_FUNCTIONS = {
    "sandbox_create_params": (ctypes.c_void_p, ()),
    "sandbox_set_param": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
    "sandbox_free_params": (None, (ctypes.c_void_p,)),
    "sandbox_compile_string": (ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)),
    "sandbox_apply": (ctypes.c_int, (ctypes.c_void_p,)),
}
"""The functions that are needed, each with the type of its result and of its arguments."""

_FIXED = """\
(version 1)
(deny default)

; Not denied by default. Information on a process holds its arguments and environment.
(deny process-info*)
(deny process-info-pidinfo)
(deny sysctl-read (sysctl-name-prefix "kern.procargs"))
(deny iokit-get-properties)
(deny nvram*)
(deny ipc*)
; Objects of System V outlive their maker, and denying ipc* alone is said to let them through.
(when (defined? 'syscall-unix)
  (deny syscall-unix (syscall-number SYS_semget SYS_shmget SYS_msgget SYS_semsys SYS_shmsys SYS_msgsys)))

(allow process-info-pidinfo (target self))
(allow process-info-setcontrol (target self))
(allow signal (target self))
; Names one by one: a prefix may cover what gives other processes away.
(allow sysctl-read
  (sysctl-name "hw.activecpu") (sysctl-name "hw.byteorder") (sysctl-name "hw.cachelinesize")
  (sysctl-name "hw.cpufamily") (sysctl-name "hw.cputype") (sysctl-name "hw.logicalcpu")
  (sysctl-name "hw.logicalcpu_max") (sysctl-name "hw.machine") (sysctl-name "hw.memsize") (sysctl-name "hw.model")
  (sysctl-name "hw.ncpu") (sysctl-name "hw.pagesize") (sysctl-name "hw.pagesize_compat")
  (sysctl-name "hw.physicalcpu") (sysctl-name "hw.physicalcpu_max")
  (sysctl-name "kern.argmax") (sysctl-name "kern.hostname") (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.osproductversion") (sysctl-name "kern.osrelease") (sysctl-name "kern.ostype")
  (sysctl-name "kern.osversion") (sysctl-name "kern.usrstack64") (sysctl-name "kern.version")
  (sysctl-name "vm.loadavg"))

; Libraries of the system, most of which lie in the dynamic linker's cache, and time zones.
(allow file-read* file-map-executable
  (subpath "/usr/lib") (subpath "/System/Library/Frameworks") (subpath "/System/Library/PrivateFrameworks")
  (subpath "/System/Cryptexes/OS") (subpath "/System/Volumes/Preboot/Cryptexes/OS")
  (subpath "/private/preboot/Cryptexes/OS") (subpath "/private/var/db/dyld"))
(allow file-read*
  (subpath "/System/Library/CoreServices/SystemVersion.bundle")
  (literal "/System/Library/CoreServices/SystemVersion.plist")
  (literal "/System/Library/CoreServices/SystemVersionCompat.plist")
  (subpath "/usr/share/zoneinfo") (subpath "/usr/share/zoneinfo.default") (subpath "/private/var/db/timezone"))
; The root directory: the linker and getcwd open it. Links on the way to the rest: following one is reading it.
(allow file-read* (literal "/"))
(allow file-read-metadata (literal "/etc") (literal "/tmp") (literal "/var") (literal "/dev"))
"""


def profile(rules: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The profile for a child, and its parameters: paths never become part of the text.

    Args:
        rules: `listable`, directories that may be listed with all below them; `readable`, files that may be read and
            directories all of whose files may be; `devices`, which may be read and written. Links resolved, because
            Seatbelt sees only the paths that they lead to.
    """
    parameters: dict[str, str] = {}

    def named(filter_name: str, kind: str, paths: Iterable[str]) -> list[str]:
        names = {f"{kind}{number}": path for number, path in enumerate(paths)}
        parameters.update(names)
        return [f'({filter_name} (param "{name}"))' for name in names]

    readable = named("subpath", "READABLE", rules["readable"])
    listable = named("subpath", "LISTABLE", rules["listable"])
    devices = named("literal", "DEVICE", rules["devices"])
    ancestors = named("literal", "ANCESTOR", _ancestors([*rules["readable"], *rules["listable"]]))
    parts = [
        _FIXED,
        _allow("file-read* file-map-executable", readable),
        _allow("file-read-data file-read-metadata", (_both(path, "DIRECTORY") for path in listable)),
        _allow("file-read* file-write-data", (_both(path, "CHARACTER-DEVICE") for path in devices)),
        _allow("file-read-metadata", ancestors),
    ]
    return "\n".join(parts), parameters


def _ancestors(paths: Iterable[str]) -> list[str]:
    """The directories above the paths, without the root, each once."""
    found = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return sorted(found - {"/"})


def _allow(operations: str, filters: Iterable[str]) -> str:
    """A rule; nothing at all without filters, because then it would allow the operations everywhere."""
    lines = "".join(f"\n  {each}" for each in filters)
    return f"(allow {operations}{lines})\n" if lines else ""


def _both(path: str, kind: str) -> str:
    return f"(require-all {path} (vnode-type {kind}))"


@functools.cache
def library() -> ctypes.CDLL:
    """The library of Seatbelt, with the types of its functions declared. Loaded once, and not in a fork.

    Raises:
        LockdownError: there is none, or one of its functions is missing.
    """
    try:
        loaded = ctypes.CDLL(_LIBRARY, use_errno=True)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LockdownError(f"{_LIBRARY} cannot be used: {error}") from error
    return loaded


def compile_profile(rules: dict[str, Any]) -> int:
    """Compile the profile for the children, which takes some milliseconds.

    Returns:
        The address of the compiled profile, for `restrict`. It is never freed.

    Raises:
        LockdownError: it does not compile.
    """
    text, parameters = profile(rules)
    seatbelt = library()
    # In a variable until the end, because nobody says whether the library copies them.
    pairs = [(os.fsencode(name), os.fsencode(path)) for name, path in parameters.items()]
    handle = seatbelt.sandbox_create_params()
    try:
        for name, path in pairs:
            if seatbelt.sandbox_set_param(handle, name, path) != 0:
                raise LockdownError(f"the Seatbelt profile cannot have the parameter {os.fsdecode(path)!r}")
        message = ctypes.c_char_p()
        compiled = seatbelt.sandbox_compile_string(text.encode(), handle, ctypes.byref(message))
    finally:
        seatbelt.sandbox_free_params(handle)
    if not compiled:
        reason = (message.value or b"no reason given").decode("utf-8", "replace")
        raise LockdownError(f"the Seatbelt profile does not compile: {' '.join(reason.split())}")
    return int(compiled)


def restrict(compiled: int) -> None:
    """Put this process, with all its threads, under a compiled profile for good.

    Raises:
        LockdownError: the kernel refused, as it does when the process is in a sandbox already.
    """
    if library().sandbox_apply(compiled) != 0:
        raise LockdownError(f"sandbox_apply: {os.strerror(ctypes.get_errno())}")
