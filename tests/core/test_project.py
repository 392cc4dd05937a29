"""One iteration at a time: the project's lock is the kernel's, names its holder, and dies with it."""

import errno
import fcntl
import json
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rlm_core.errors import Busy, StageFailed
from rlm_core.state.project import Project
from tests.samples.holder import holder


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_a_project_that_is_held_elsewhere_is_busy_and_says_with_whom_and_since_when(project: Project) -> None:
    with holder(project) as process, pytest.raises(Busy) as caught, project.held():
        pass
    words = str(caught.value).split()
    assert words[:-1] == [str(project.root), "is", "in", "use", "by", "process", str(process.pid), "since"]
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(words[-1]) < timedelta(seconds=30)
    assert caught.value.exit_code == 3


def test_a_killed_holder_frees_the_project_at_once(project: Project) -> None:
    with holder(project) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with project.held():
            pass


def test_waiting_ends_when_the_holder_does(project: Project) -> None:
    with holder(project) as process:
        started = time.monotonic()
        killer = threading.Timer(0.5, process.kill)
        killer.start()
        with project.held(wait_s=20):
            waited = time.monotonic() - started
        killer.join()
    assert 0.4 < waited < 10


def test_waiting_in_vain_ends_after_its_time(project: Project) -> None:
    with project.held():
        started = time.monotonic()
        with pytest.raises(Busy), project.held(wait_s=0.3):
            pass
        assert 0.3 <= time.monotonic() - started < 3


def test_one_process_cannot_hold_a_project_twice(project: Project) -> None:
    with project.held(), pytest.raises(Busy, match=f"process {os.getpid()} since"), project.held():
        pass
    with project.held():
        pass


def test_two_projects_do_not_hinder_each_other(tmp_path: Path) -> None:
    with Project(tmp_path / "a").held(), Project(tmp_path / "b").held():
        pass


def test_removing_the_lock_file_does_not_free_the_project(project: Project) -> None:
    with holder(project):
        (project.root / "lock").unlink()
        with pytest.raises(Busy, match="is in use by another process"), project.held():
            pass


def test_a_file_that_is_locked_where_the_directory_is_not_is_busy_too(project: Project) -> None:
    """As on a shared disk, where other machines see the lock of the file alone."""
    project.root.mkdir()
    with (project.root / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Busy), project.held():
            pass
    with project.held():
        pass


def test_an_error_in_the_block_frees_the_project(project: Project) -> None:
    with pytest.raises(KeyError), project.held():
        raise KeyError
    with project.held():
        pass


def test_a_holder_that_wrote_nothing_readable_is_another_process(project: Project) -> None:
    with project.held():
        (project.root / "lock").write_text("[")
        with pytest.raises(Busy, match="is in use by another process"), project.held():
            pass


def test_who_waits_is_told_whom_for_and_may_give_up(project: Project) -> None:
    heard: list[str] = []

    def give_up(busy: str) -> None:
        heard.append(busy)
        raise KeyError

    with holder(project) as process, pytest.raises(KeyError), project.held(wait_s=60, on_wait=give_up):
        pass
    assert heard[0].startswith(f"{project.root} is in use by process {process.pid} since ")


def test_a_holder_that_was_killed_is_known_to_the_next_one_and_to_no_other(project: Project) -> None:
    with holder(project) as process:
        pass  # which kills it
    with project.held() as before:
        assert before is not None
        assert before.pid == process.pid
    with project.held() as before:
        assert before is None


def test_who_holds_a_project_can_be_read_while_it_lives(project: Project) -> None:
    assert project.holder() is None
    with holder(project) as process:
        found = project.holder()
        assert found is not None
        assert found.pid == process.pid
    assert project.holder() is None, "it was killed"
    with project.held():
        pass
    assert project.holder() is None, "it let go"
    (project.root / "lock").write_text('{"pid": "7", "since": "now"}')
    assert project.holder() is None, "no process has such an id"


def test_a_holder_that_was_killed_while_it_signed_is_known_to_the_next_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.root.mkdir()
    (project.root / "lock").write_text(f'{{"pid": 1, "since": "then", "flow_run": "{"x" * 200}"}}\n')

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", kill)
        with pytest.raises(KeyboardInterrupt), project.held(flow_run="own"):
            pass
    with project.held() as before:
        assert before is not None
        assert before.flow_run == "own"


def test_a_holder_that_failed_was_not_killed(project: Project) -> None:
    with pytest.raises(KeyError), project.held(flow_run="id"):
        raise KeyError
    with project.held() as before:
        assert before is None


def test_the_flow_run_of_a_holder_is_written_down(project: Project) -> None:
    with project.held(flow_run="some-id"):
        assert json.loads((project.root / "lock").read_text())["flow_run"] == "some-id"


def test_what_an_earlier_holder_wrote_is_gone(project: Project) -> None:
    project.root.mkdir()
    lock = project.root / "lock"
    lock.write_text("x" * 500)
    with project.held():
        assert lock.read_text().startswith('{"pid": ')
        assert "x" not in lock.read_text()


def test_a_directory_that_cannot_be_made_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    inside_a_file = Project(tmp_path / "file" / "project")
    with pytest.raises(StageFailed, match=r"cannot write .*/file/project/lock: "), inside_a_file.held():
        pass


def test_a_full_disk_fails_with_the_name_of_the_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StageFailed, match=r"cannot write .*/lock: No space left"), project.held():
            pass
    with project.held():
        pass


def test_a_project_knows_its_places(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert project.ledger == tmp_path / "ledger.sqlite"
    assert (project.run(7), project.run(12_345)) == (tmp_path / "runs" / "0007", tmp_path / "runs" / "12345")
