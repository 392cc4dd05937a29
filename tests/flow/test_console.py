"""A run's output is piped to the worker that started it, which may be killed: the run goes on."""

import subprocess
import sys

import pytest

_RUN = """
import logging
import sys
from prefect.logging.configuration import setup_logging
from flows.console import outlive_the_reader

setup_logging()
log = logging.getLogger("prefect.engine")
if sys.argv[1] == "outlives":
    outlive_the_reader()
log.error("somebody reads this")
input()
for _ in range(3):
    log.error("nobody reads this")
"""


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("outlives", 0),
        # What makes it necessary: should this fail, Prefect and rich do better now.
        ("ends", 1),
    ],
)
def test_a_run_goes_on_when_nobody_reads_its_output(what: str, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, what], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert "somebody reads this" in process.stderr.readline()
        process.stderr.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60) == code
