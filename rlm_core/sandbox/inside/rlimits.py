"""Resource limits of a child: what the kernel of either platform can be asked to enforce."""

import resource
import sys
from typing import Any

from .errors import LockdownError

_MB = 1 << 20


def limit_resources(limits: dict[str, Any]) -> None:
    """Set those of the limits that the kernel enforces, for good.

    Args:
        limits: see `Limits`; `threads` is None where they cannot be counted.

    Raises:
        LockdownError: the kernel refused one.
    """
    wanted = {
        "CORE": (0, 0),
        # The soft limit ends the process unless it handles SIGXCPU; Linux ends it at the hard one whatever it does.
        "CPU": (limits["cpu_s"], limits["cpu_s"] + 1),
        "FSIZE": (limits["file_mb"] * _MB,) * 2,
        "NOFILE": (limits["open_files"],) * 2,
        "MEMLOCK": (0, 0),
    }
    if sys.platform != "darwin":
        # macOS refuses an address space below the hundreds of gigabytes that every process has there from its start,
        # and a new stack size where the interpreter was built with one of its own. The other two it does not know.
        wanted |= {
            "AS": (limits["memory_mb"] * _MB,) * 2,
            "STACK": (8 * _MB,) * 2,
            "MSGQUEUE": (0, 0),
            "SIGPENDING": (256, 256),
        }
    if limits["threads"] is not None:
        wanted["NPROC"] = (limits["threads"],) * 2
    for name, pair in wanted.items():
        _lower(name, *pair)


def _lower(name: str, soft: int, hard: int) -> None:
    """Set a resource limit, or keep the present hard limit where that is lower already."""
    kind: int = getattr(resource, f"RLIMIT_{name}")
    present = resource.getrlimit(kind)[1]
    if present != resource.RLIM_INFINITY:
        hard = min(hard, present)
    try:
        resource.setrlimit(kind, (min(soft, hard), hard))
    except (OSError, ValueError) as error:
        raise LockdownError(f"setrlimit {name}: {error}") from error
