"""Memory over many iterations in one process, as a nightly series has them."""

import gc
import os
from pathlib import Path

import pytest
from prefect.testing.utilities import prefect_test_harness

from flows.iterate import iterate
from tests.conftest import MakeConfig

ITERATIONS = 20
_WARM = 5
"""Iterations until caches are filled and everything is imported."""
_GROWTH_MB = 40.0
"""Allowed in the rest. An iteration that leaked its model or its rollouts would be far above."""


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.timeout(3_600)
def test_memory_does_not_grow_over_twenty_iterations(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(make_config())
    used = []
    with prefect_test_harness(server_startup_timeout=600):
        for number in range(1, ITERATIONS + 1):
            iterate(config)
            used.append(resident_mb())
            with capsys.disabled():
                print(f"iteration {number}: {used[-1]:.0f} MB", flush=True)
    assert max(used[-3:]) - used[_WARM - 1] < _GROWTH_MB
