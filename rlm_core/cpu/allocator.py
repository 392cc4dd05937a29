"""Freed memory stays with the process on Linux with glibc.

MLX asks for the memory of each intermediate result and gives it back as soon as it can. What is large, glibc takes from
the kernel and returns to it every time, and the kernel clears every page of it again: scoring answers took a tenth
longer, its last layer almost twice as long. With higher thresholds the next result gets the same memory. So that it
does so in whichever thread it is asked for, there is one heap for all of them: with one for each, the flow's threads
together held 5 GB where 2 were enough.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_FROM_HEAP = 32 * 2**20
"""The most that glibc allows."""
_KEPT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Set this process' allocator.

    Returns:
        Whether it was set; not with another C library than glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = ((_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_M_TRIM_THRESHOLD, _KEPT), (_M_ARENA_MAX, 1))
    return mallopt is not None and all(mallopt(name, value) for name, value in wanted)
