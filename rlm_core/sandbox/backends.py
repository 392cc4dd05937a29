"""The kinds of sandbox. To add one, write a `Backend` and put it into `BACKENDS`; callers do not change."""

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlm_core.sandbox.inside import landlock, seccomp
from rlm_core.sandbox.interpreter import DEVICES, INSIDE, SYSTEM, Interpreter


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


# --------------------------------------------------------------------------------------------------------- bubblewrap


def _bubblewrap_missing() -> str | None:
    reason = _kernel_missing(landlock_abi=1)
    if reason is None and shutil.which("bwrap") is None:
        return "bubblewrap is not installed: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"
    return reason


def _bubblewrap_launch(interpreter: Interpreter) -> Launch:
    """New namespaces with a file system of the interpreter and libraries only, read-only, and no network.

    Not --die-with-parent: that is tied to the thread that starts bwrap, and a thread of a pool may end long before the
    sandbox does. The zygote watches the process itself (see inside/__main__.py).
    """
    executable = interpreter.executable
    bwrap = shutil.which("bwrap")
    assert bwrap is not None, "checked by _bubblewrap_missing"
    command = [bwrap, "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--cap-drop", "ALL"]
    user = _spare_user()
    keep_read_access = user is not None and not interpreter.readable_by_all
    if user is not None:
        # No user namespace: its one user would be root outside, whom the kernel exempts from the limit on threads. The
        # zygote keeps what it needs to give each child another user and to kill it.
        for capability in ("SETUID", "SETGID", "KILL", *(["DAC_READ_SEARCH"] if keep_read_access else [])):
            command += ["--cap-add", f"CAP_{capability}"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += _bubblewrap_mounts(interpreter)
    command += ["--chdir", "/rlm", "--", str(executable)]
    return Launch(
        command=tuple(command),
        directory=Path("/"),
        user=user,
        keep_read_access=keep_read_access,
        count_threads=True,
    )


def _bubblewrap_mounts(interpreter: Interpreter) -> list[str]:
    sources = {path: path for path in (*interpreter.readable, interpreter.executable)}
    sources[Path("/rlm/inside")] = INSIDE
    links = [path for path in map(Path, SYSTEM) if path.is_symlink()]
    parents = {parent for path in (*sources, *links, *map(Path, DEVICES)) for parent in path.parents} - {Path("/")}
    arguments = []
    # Made explicitly, because bwrap lets only root into the parents that it makes by itself.
    for parent in sorted(parents):
        if not any(parent.is_relative_to(path) for path in interpreter.readable):
            arguments += ["--dir", str(parent)]
    for target, source in sources.items():
        arguments += ["--ro-bind", str(source), str(target)]
    for path in links:
        arguments += ["--symlink", str(path.readlink()), str(path)]
    for device in DEVICES:
        arguments += ["--dev-bind", device, device]
    for path in interpreter.hidden:
        arguments += ["--tmpfs", str(path), "--remount-ro", str(path)]
    return [*arguments, "--remount-ro", "/"]


# ----------------------------------------------------------------------------------------------------------- landlock


def _landlock_missing() -> str | None:
    # Before version 3 Landlock does not hinder truncating a readable file, and here nothing else would.
    return _kernel_missing(landlock_abi=3)


def _landlock_launch(interpreter: Interpreter) -> Launch:
    """No namespaces: the children see the names of the machine's files, and may open next to none of them."""
    user = _spare_user()
    everybody_reads = interpreter.readable_by_all and interpreter.reachable_by_all
    return Launch(
        command=(str(interpreter.executable),),
        directory=INSIDE.parent,
        user=user,
        keep_read_access=user is not None and not everybody_reads,
        # Without a user of its own, the limit would count everything that the person is running.
        count_threads=user is not None,
    )


BACKENDS = (
    Backend(
        name="bubblewrap",
        title="bubblewrap+landlock+seccomp",
        missing=_bubblewrap_missing,
        launch=_bubblewrap_launch,
        advice="if namespaces are refused, allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, "
        "kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu",
    ),
    Backend(name="landlock", title="landlock+seccomp", missing=_landlock_missing, launch=_landlock_launch),
)
"""Strongest first."""


# ------------------------------------------------------------------------------------------------------------- common


def _kernel_missing(landlock_abi: int) -> str | None:
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


def _spare_user() -> int | None:
    """A user id that nothing else on the machine is likely to have, when we are root and can give it to a child.

    One per sandbox, so that candidates in different sandboxes share neither a user nor its count of threads. The range
    is the one that systemd sets aside for such users, and lies within the ids that a container usually has. A root of a
    user namespace that has no such ids is in truth an ordinary user, and treated as one.
    """
    lowest, highest = 61184, 65519
    if os.geteuid() != 0:
        return None
    rows = (map(int, row.split()) for row in Path("/proc/self/uid_map").read_text().splitlines())
    if not any(first <= lowest and highest < first + count for first, _outside, count in rows):
        return None
    return random.SystemRandom().randint(lowest, highest)
