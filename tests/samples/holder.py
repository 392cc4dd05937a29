"""Another process that holds a project."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rlm_core.state.project import Project

_HOLD = """
import sys, time
from pathlib import Path
from rlm_core.state.project import Project
with Project(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(project: Project) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the project."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(project.root)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
