"""New namespaces with a file system of the interpreter and libraries only, read-only, and no network."""

import shutil
from pathlib import Path

from rlm_core.sandbox.backends.base import PACKAGES, Backend, Launch, kernel_missing, spare_user
from rlm_core.sandbox.interpreter import DEVICES, INSIDE, SYSTEM, Interpreter


def _missing() -> str | None:
    reason = kernel_missing(landlock_abi=1)
    if reason is None and shutil.which("bwrap") is None:
        return "bubblewrap is not installed: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora)"
    return reason


def _launch(interpreter: Interpreter) -> Launch:
    # Not --die-with-parent: that is tied to the thread that starts bwrap, and a thread of a pool may end long before
    # the sandbox does. The zygote watches the process itself (see inside/__main__.py).
    bwrap = shutil.which("bwrap")
    assert bwrap is not None, "checked by _missing"
    command = [bwrap, "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--cap-drop", "ALL"]
    user = spare_user()
    keep_read_access = user is not None and not interpreter.readable_by_all
    if user is not None:
        # No user namespace: its one user would be root outside, whom the kernel exempts from the limit on threads. The
        # zygote keeps what it needs to give each child another user and to kill it.
        for capability in ("SETUID", "SETGID", "KILL", *(["DAC_READ_SEARCH"] if keep_read_access else [])):
            command += ["--cap-add", f"CAP_{capability}"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += _mounts(interpreter)
    command += ["--chdir", "/rlm", "--", str(interpreter.executable)]
    return Launch(
        command=tuple(command),
        directory=Path("/"),
        user=user,
        keep_read_access=keep_read_access,
        count_threads=True,
        listable=tuple(map(str, interpreter.readable)),
        readable=tuple(map(str, interpreter.exposed)),
        packages=tuple(str(PACKAGES / path.name) for path in interpreter.packages),
    )


def _mounts(interpreter: Interpreter) -> list[str]:
    sources = {path: path for path in (*interpreter.readable, interpreter.executable)}
    sources[Path("/rlm/inside")] = INSIDE
    sources |= {PACKAGES / path.name: path for path in interpreter.packages}
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


BACKEND = Backend(
    name="bubblewrap",
    title="bubblewrap+landlock+seccomp",
    missing=_missing,
    launch=_launch,
    advice="if namespaces are refused, allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 on Debian, "
    "kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu",
)
