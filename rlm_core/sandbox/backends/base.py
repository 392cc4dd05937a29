"""What a kind of sandbox is: why a machine may not have it, and how a zygote is started in it."""

import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlm_core.sandbox.door import Door
from rlm_core.sandbox.inside import landlock, seccomp
from rlm_core.sandbox.interpreter import Interpreter

PACKAGES = Path("/rlm/packages")
"""Where a sandbox with a file system of its own has the interpreter's `packages`."""
_SPARE = (61184, 65519)
"""Lowest and highest user id for sandboxes."""


@dataclass(frozen=True)
class Launch:
    """How to start a zygote in a sandbox."""

    command: tuple[str, ...]
    """Up to and including the Python executable; its own arguments follow."""
    directory: Path
    """Where `command` is to be started; the zygote's package is found from there."""
    user: int | None
    """User id that a child changes to; None when it has a user without privileges already."""
    keep_read_access: bool
    """Whether a child that changes its user needs help to still reach the interpreter (`kernel.become_user`)."""
    count_threads: bool
    """Whether the kernel counts the threads of this sandbox alone, so that a limit can be set."""
    listable: tuple[str, ...]
    """Directories that a child may list, with all below them, as they are called inside."""
    readable: tuple[str, ...]
    """Files that a child may read, and directories all of whose files it may, as they are called inside."""
    packages: tuple[str, ...]
    """The interpreter's `packages`, as they are called inside."""
    real_pids: bool = False
    """Whether the zygote knows its children by the same process ids as we do, so that we can kill them without it."""
    polls_memory: bool = False
    """Whether `memory_mb` is for us to enforce, by looking, because no kernel does."""
    foreign: bool = False
    """Whether the interpreter is another than this process's, so that the zygote itself has to find out where its
    libraries and packages are; children may use both."""
    door: Door | None = None
    """How the zygote comes to us when it cannot inherit a descriptor. Then `command` takes the zygote's environment, as
    JSON, before the arguments."""


@dataclass(frozen=True)
class Backend:
    """One kind of sandbox."""

    name: str
    title: str
    """Name in verdicts: the layers that hold the code."""
    missing: Callable[[], str | None]
    """Why this machine cannot have it, with what to install, or None when it may."""
    launch: Callable[[Interpreter], Launch]
    advice: str = ""
    """What a person can do when it should work and does not."""


def kernel_missing(landlock_abi: int) -> str | None:
    """Why this kernel cannot hold a child under Landlock and seccomp, with what to do, or None when it can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    unsupported = seccomp.unsupported()
    if unsupported:
        return unsupported
    found = landlock.version()
    if found < landlock_abi:
        since = {1: "5.13", 3: "6.2"}[landlock_abi]
        return (
            f"it needs Landlock version {landlock_abi} and this kernel has {found}: "
            f"boot Linux {since} or newer, with landlock among its lsm="
        )
    return None


def spare_user() -> int | None:
    """A user id that nothing else on the machine is likely to have, when we are root and can give it to a child.

    One per sandbox, so that candidates in different sandboxes share neither a user nor its count of threads. The range
    is the one that systemd sets aside for such users, and lies within the ids that a container usually has. A root of a
    user namespace that has no such ids is in truth an ordinary user, and treated as one.
    """
    lowest, highest = _SPARE
    if os.geteuid() != 0:
        return None
    rows = (map(int, row.split()) for row in Path("/proc/self/uid_map").read_text().splitlines())
    if not any(first <= lowest and highest < first + count for first, _outside, count in rows):
        return None
    return any_spare_user()


def any_spare_user() -> int:
    """A user id that nothing else on the machine is likely to have."""
    return random.SystemRandom().randint(*_SPARE)
