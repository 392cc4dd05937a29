"""Temporary files and directories beside what is made in them. Their names tell which process is at work there, so that
what a killed one left can be swept away and what a living one makes cannot."""

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial-"
"""What the name of a file or directory begins with that is not whole yet; see `partial_suffix` for its end."""

_building = threading.RLock()


def partial_suffix(suffix: str = "") -> str:
    """What such a name ends with: this process's id, and the suffix of what is made."""
    return f".p{os.getpid()}{suffix}"


def is_left_over(partial: str) -> bool:
    """Whether the process that such a name tells of is gone. One of our own id was killed before us: ids of processes
    repeat, above all in containers."""
    found = re.search(r"\.p(\d+)(\.[^.]+)?$", partial)
    return found is None or int(found[1]) == os.getpid() or not _is_alive(int(found[1]))


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A temporary directory beside `target`, for the time of the block. What killed processes left of theirs goes."""
    prefix = f"{PARTIAL}{target.name}-"
    with _building:  # so that none of this process's own is in use when they are swept
        for left in target.parent.iterdir():
            if left.name.startswith(prefix) and is_left_over(left.name):
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix, suffix=partial_suffix()) as directory:
            yield Path(directory)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True
