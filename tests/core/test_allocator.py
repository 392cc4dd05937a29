"""Freed memory is used again instead of being fetched from the kernel each time."""

import subprocess
import sys

import pytest

_FAULTS = """
import resource, threading
{before}
def work():
    results = [bytearray(b"x") * 20_000_000 for _ in range(10)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def in_thread():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
work()
start = faults()
work()
in_thread()
in_thread()
print(faults() - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it needs Linux")
def test_large_results_get_the_memory_of_earlier_ones_in_any_thread() -> None:
    def faults(before: str) -> int:
        run = subprocess.run([sys.executable, "-c", _FAULTS.format(before=before)], capture_output=True, text=True)
        return int(run.stdout)

    usual, kept = faults(""), faults("import rlm_core")
    assert kept < usual / 20, (kept, usual)
