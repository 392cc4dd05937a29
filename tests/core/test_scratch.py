"""What a killed process has left of a temporary directory goes with the next one, and what a living one makes stays."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlm_core.scratch import scratch_beside

MAKE = """
import sys
from pathlib import Path
from rlm_core.scratch import scratch_beside
with scratch_beside(Path(sys.argv[1])) as directory:
    (directory / "large").write_text("x")
    print(directory, flush=True)
    sys.stdin.read()
"""


@contextmanager
def maker(target: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that is making `target`, and its temporary directory."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKE, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays(tmp_path: Path) -> None:
    target, other = tmp_path / "model", tmp_path / "model-2"
    other.mkdir()
    with maker(target) as (process, left):
        with scratch_beside(target) as own:
            assert left.is_dir()
            assert own.parent == left.parent == tmp_path
        process.kill()
        process.wait()
        assert (left / "large").exists()
        with scratch_beside(target) as own:
            assert set(tmp_path.iterdir()) == {own, other}
    assert list(tmp_path.iterdir()) == [other]


def test_a_process_that_has_the_id_of_the_one_that_was_killed_sweeps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with maker(tmp_path / "model") as (process, left):
        process.kill()
        process.wait()
        monkeypatch.setattr("os.getpid", lambda: process.pid)
        with scratch_beside(tmp_path / "model"):
            assert not left.exists()
