"""The order in which a child gives up what it could do. Any step that fails raises, and the child must end.

The order matters. The user changes before PR_SET_PDEATHSIG, because the kernel clears that on a change. Landlock comes
before seccomp, because the filter does not allow Landlock's own calls.
"""

import os
import resource
import signal
from typing import Any

from . import kernel, landlock, seccomp
from .kernel import LockdownError

_MB = 1 << 20


def apply(rules: dict[str, Any], ruleset: int, parent: int) -> None:
    """Lock this process down for good.

    Args:
        rules: `user` (id to become, or None to stay the same), `keep_read_access`, and `limits`: see `Limits`.
        ruleset: descriptor of the Landlock ruleset.
        parent: process id of the zygote, with which this process ends.

    Raises:
        LockdownError: a restriction could not be applied.
    """
    os.umask(0o077)
    os.chdir("/")
    if rules["user"] is not None:
        kernel.become_user(rules["user"], rules["keep_read_access"])
    else:
        kernel.keep_capabilities(0)
    kernel.not_dumpable()
    kernel.die_with_parent(parent, signal.SIGKILL)
    _limit_resources(rules["limits"])
    landlock.restrict(ruleset)
    seccomp.restrict()


def _limit_resources(limits: dict[str, Any]) -> None:
    wanted = {
        resource.RLIMIT_CORE: (0, 0),
        # The soft limit ends the process unless it handles SIGXCPU; the hard one ends it a second later.
        resource.RLIMIT_CPU: (limits["cpu_s"], limits["cpu_s"] + 1),
        resource.RLIMIT_AS: (limits["memory_mb"] * _MB,) * 2,
        resource.RLIMIT_FSIZE: (limits["file_mb"] * _MB,) * 2,
        resource.RLIMIT_NOFILE: (limits["open_files"],) * 2,
        resource.RLIMIT_STACK: (8 * _MB,) * 2,
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_SIGPENDING: (256, 256),
    }
    if limits["threads"] is not None:
        wanted[resource.RLIMIT_NPROC] = (limits["threads"],) * 2
    for kind, pair in wanted.items():
        _lower(kind, *pair)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a resource limit, or keep the present hard limit where that is lower already."""
    present = resource.getrlimit(kind)[1]
    if present != resource.RLIM_INFINITY:
        hard = min(hard, present)
    try:
        resource.setrlimit(kind, (min(soft, hard), hard))
    except (OSError, ValueError) as error:
        raise LockdownError(f"setrlimit {kind}: {error}") from error
