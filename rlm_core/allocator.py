"""Freed memory stays with the process on Linux with glibc.

MLX asks for the memory of each intermediate result and gives it back as soon as it can. What is large, glibc takes from
the kernel and returns to it every time, and the kernel clears every page of it again: scoring answers took a tenth
longer, its last layer almost twice as long. With higher thresholds the next result gets the same memory.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_FROM_HEAP = 32 * 2**20
"""The most that glibc allows."""
_KEPT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Raise the thresholds of this process.

    Returns:
        Whether they were raised; not with another C library than glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
