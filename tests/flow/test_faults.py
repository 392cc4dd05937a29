"""Iterations under injected faults: each ends well by itself, or with one clear error and well when started again."""

import errno
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow, get_client, task
from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL
from prefect.states import Cancelled, Crashed, Running

import flows.place
from flows.improve import improve
from flows.iterate import iterate
from rlm_core import progress
from rlm_core.errors import LedgerError, RlmError, StageFailed
from rlm_core.model.policy import Policy
from rlm_core.progress import Progress
from rlm_core.state.ledger import open_ledger
from rlm_core.state.lock import Holder
from rlm_core.state.project import Project
from tasks.pages import publish
from tests.chaos.kills import outcome
from tests.conftest import MakeConfig
from tests.samples.holder import holder

MAY_MOUNT = os.geteuid() == 0 and shutil.which("mount") is not None


def project_of(config: Path) -> Project:
    return Project(config.with_name("project"))


def undisturbed(config: Path) -> dict[str, Any]:
    """The outcome of an iteration to which nothing happens; the project is gone afterwards."""
    iterate(str(config))
    project = project_of(config)
    result = outcome(project)
    shutil.rmtree(project.root)
    return result


def when(stage: str, act: Callable[[], None]) -> Callable[[Progress], None]:
    """A listener that acts once, when a stage has done something."""
    done: list[bool] = []

    def listen(report: Progress) -> None:
        if report.stage == stage and report.done and not done:
            done.append(True)
            act()

    return listen


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# ------------------------------------------------------------------------------------------------------------- the disk


@contextmanager
def small_disk(directory: Path) -> Iterator[Callable[[str], None]]:
    """A file system of its own; the function that is given mounts it anew with other options."""
    directory.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    try:
        mount("size=16k")
    except subprocess.CalledProcessError as error:  # root in a container may not
        pytest.skip(error.stderr.splitlines()[0])
    try:
        yield lambda options: mount(f"remount,{options}")
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.skipif(not MAY_MOUNT, reason="mounting a small file system needs root")
@pytest.mark.timeout(600)
def test_a_disk_that_is_full_again_and_again_costs_no_more_than_tries(make_config: MakeConfig) -> None:
    config = make_config()
    expected = undisturbed(config)
    project = project_of(config)
    failures: list[str] = []
    with small_disk(project.root) as remount:
        for size in (16, 40, 80, 140, 200, 260, 320, 2_000):
            remount(f"size={size}k")
            try:
                iterate(str(config))
                break
            except RlmError as error:
                failures.append(str(error))
        assert outcome(project) == expected
        assert not [path for path in project.root.rglob("*") if path.name.startswith(".")]
    assert len(failures) >= 3
    for line in failures:
        assert "\n" not in line
        assert (
            "No space left" in line or "is full" in line or "is the disk full" in line or "Unable to write" in line
        ), line


@pytest.mark.skipif(not MAY_MOUNT, reason="mounting a file system read-only needs root")
def test_a_project_that_cannot_be_written_is_one_clear_error(make_config: MakeConfig) -> None:
    config = make_config()
    with small_disk(project_of(config).root) as remount:
        remount("ro")
        with pytest.raises(StageFailed, match=r"cannot write .*/project/lock: Read-only file system"):
            iterate(str(config))


def test_a_project_that_is_a_file_is_one_clear_error(make_config: MakeConfig) -> None:
    config = make_config()
    project_of(config).root.write_text("a file, not a directory")
    with pytest.raises(StageFailed, match=r"cannot write .*/project") as caught:
        iterate(str(config))
    assert caught.value.exit_code == 6


class Disk:
    """Fails each kind of write once: files by turns as they are made, flushed and renamed, the ledger as it commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[str] = set()
        """What was written, by kinds: shards, exams and results are of one each."""
        self.left: set[str] = set()
        """What is to fail still."""
        self._failing = threading.local()
        self._failures = 0
        monkeypatch.setattr(tempfile, "mkstemp", self._making(tempfile.mkstemp))
        monkeypatch.setattr(os, "fsync", self._failing_at("flush", os.fsync))
        monkeypatch.setattr(Path, "replace", self._failing_at("rename", Path.replace))
        monkeypatch.setattr(sqlite3, "connect", self._connecting(sqlite3.connect))

    def _fails(self, kind: str) -> bool:
        self.seen.add(kind)
        if kind not in self.left:
            return False
        self.left.remove(kind)
        return True

    def _making(self, make: Any) -> Any:
        def mkstemp(**options: Any) -> Any:
            ours = re.fullmatch(r"\.partial-(.*)-", options.get("prefix", ""))
            if ours is None:
                return make(**options)
            name = re.sub(r"^(.*-)?([0-9a-f]{16}|[0-9]{3})", "*", ours[1]) + Path(options["suffix"]).suffix
            self._failing.at = ""
            if self._fails(f"{re.sub('[0-9]{4}', '*', options['dir'].name)}/{name}"):
                self._failures += 1
                self._failing.at = ("make", "flush", "rename")[self._failures % 3]
                self._fail_at("make")
            return make(**options)

        return mkstemp

    def _failing_at(self, moment: str, call: Any) -> Any:
        def failing(*args: Any) -> Any:
            self._fail_at(moment)
            return call(*args)

        return failing

    def _fail_at(self, moment: str) -> None:
        if getattr(self._failing, "at", "") == moment:
            self._failing.at = ""
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _connecting(self, connect: Any) -> Any:
        fails = self._fails

        class Connection(sqlite3.Connection):
            def __exit__(self, *args: Any) -> Any:
                if args[0] is None and fails(f"commit of {sys._getframe(1).f_code.co_name}"):
                    self.rollback()
                    raise sqlite3.OperationalError("database or disk is full")
                return super().__exit__(*args)

        return lambda *args, **options: connect(*args, **{"factory": Connection, **options})


@pytest.mark.timeout(1_200)
def test_a_write_that_fails_fails_its_stage_and_is_made_up_for(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of an iteration, one after the other."""
    config = make_config(gate={"rule": "threshold", "threshold": 0.0}, train={"rehearsal": {"share": 0.2}})
    disk = Disk(monkeypatch)
    expected = undisturbed(config)
    disk.left = disk.seen.copy()
    assert {"*/config.json", "*/checkpoint.safetensors", "*/decision.json", "project/ledger.backup.sqlite"} < disk.left
    assert {"results/*", "rollouts/*.jsonl", "verdicts/*.jsonl", "exams/*.json", "commit of commit"} < disk.left
    assert {"exams/*.000.part", "*/gate.md", "*/iteration.md", "*/learning.md", "*/metrics.jsonl"} < disk.left
    failures = []
    while disk.left:
        before = len(disk.left)
        try:
            iterate(str(config))
        except RlmError as error:
            failures.append(str(error))
            assert "No space left" in failures[-1] or "is full" in failures[-1]
        assert len(disk.left) < before, "what is left is not written any more"
    assert len(failures) >= 20
    assert outcome(project_of(config)) == expected
    assert not [path for path in project_of(config).root.rglob("*") if path.name.startswith(".")]


# ----------------------------------------------------------------------------------------------- Prefect and its server


def test_a_server_that_hangs_for_a_while_is_waited_for(make_config: MakeConfig) -> None:
    config = make_config()
    expected = undisturbed(config)
    server = SubprocessASGIServer().server_process
    assert server is not None
    waking = threading.Timer(6, server.send_signal, (signal.SIGCONT,))

    def hang() -> None:
        server.send_signal(signal.SIGSTOP)
        waking.start()

    with progress.listening(when("generate", hang)):
        iterate(str(config))
    waking.join()
    assert outcome(project_of(config)) == expected


def test_a_locked_database_of_prefect_is_waited_for(make_config: MakeConfig) -> None:
    config = make_config()
    expected = undisturbed(config)
    database = str(PREFECT_SERVER_DATABASE_CONNECTION_URL.value()).partition(":///")[2]
    locked, released = threading.Event(), threading.Event()

    def lock() -> None:
        connection = sqlite3.connect(database, timeout=60, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        locked.set()
        released.wait(12)
        connection.execute("ROLLBACK")
        connection.close()

    locking = threading.Thread(target=lock)

    def begin() -> None:
        locking.start()
        locked.wait(60)

    with progress.listening(when("generate", begin)):
        iterate(str(config))
    released.set()
    locking.join()
    assert outcome(project_of(config)) == expected


def test_a_page_that_the_server_does_not_take_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(**_: object) -> None:
        raise httpx.ConnectError("Connection refused")

    monkeypatch.setattr("tasks.pages.create_markdown_artifact", refused)
    flow(lambda: publish(Path("project"), "# Iteration 1: accepted"))()
    assert warnings(caplog) == ["Prefect's UI does not get the page gate: Connection refused"]


def test_a_run_whose_process_was_killed_is_closed_by_the_next_one_with_the_series_that_it_was_part_of(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And since nobody has told of it, that one does."""
    config, told = make_config(), list[tuple[str, str, dict[str, Any]]]()
    monkeypatch.setattr(flows.place, "tell", lambda *said: told.append(said))
    with get_client(sync_client=True) as client:
        series = client.create_flow_run(improve, state=Running())
        part = client.create_task_run(task(name="iterate")(lambda: None), series.id, dynamic_key="0")
        left_behind = client.create_flow_run(iterate, parent_task_run_id=part.id, state=Running())
        lock = project_of(config).root / "lock"
        lock.parent.mkdir()
        lock.write_text(f'{{"pid": 1, "since": "then", "flow_run": "{left_behind.id}"}}')
        iterate(str(config))
        states = [client.read_flow_run(run.id).state for run in (left_behind, series)]
    for state in states:
        assert state is not None
        assert (state.name, state.message) == ("Crashed", "process 1 since then was killed")
    assert lock.read_text() == ""
    reason = {"flow_run": left_behind.name, "reason": "process 1 since then was killed"}
    assert told == [("failed", str(project_of(config).root), reason)]


@pytest.mark.parametrize("ended", [Crashed, Cancelled])
def test_what_a_worker_saw_of_a_series_is_not_told_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, ended: Callable[..., Any]
) -> None:
    """It told of a crash itself, and had been asked to stop what it cancelled."""
    told = list[object]()
    monkeypatch.setattr(flows.place, "tell", lambda *said: told.append(said))
    project = project_of(make_config())

    @flow(name="next")
    def close(killed: Holder) -> None:
        flows.place._close_run_of(killed, project)

    with get_client(sync_client=True) as client:
        series = client.create_flow_run(improve, state=ended())
        part = client.create_task_run(task(name="iterate")(lambda: None), series.id, dynamic_key="0")
        left_behind = client.create_flow_run(iterate, parent_task_run_id=part.id, state=Running())
        close(Holder(1, "then", str(left_behind.id)))
        state = client.read_flow_run(left_behind.id).state
    assert state is not None
    assert state.name == "Crashed"
    assert told == []


# ------------------------------------------------------------------------------------------------ the rest of the world


def test_a_second_iteration_waits_for_the_first_as_long_as_it_is_told_to(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(prefect={"retry_delay_s": 0.0, "wait_for_project_s": 60.0})
    with holder(project_of(config)) as process:
        killer = threading.Timer(1, process.kill)
        killer.start()
        iterate(str(config))
        killer.join()
    [told] = [line for line in warnings(caplog) if line.startswith("waiting: ")]
    assert f"is in use by process {process.pid} since " in told


def test_a_model_that_ran_out_of_memory_tries_again_and_says_so(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config()
    expected = undisturbed(config)
    sample, failures = Policy.sample, list[int]()

    def starved(self: Policy, requests: Any, *rest: Any) -> Any:
        if len(requests) == 12 and len(failures) < 2:
            failures.append(1)
            raise RuntimeError("[malloc] Unable to allocate 8589934592 bytes.")
        return sample(self, requests, *rest)

    monkeypatch.setattr(Policy, "sample", starved)
    iterate(str(config))
    told = [line for line in warnings(caplog) if "is tried again" in line]
    assert len(told) == 2
    assert all(line.startswith("iteration 1 · rollout shard ") and "Unable to allocate" in line for line in told)
    assert outcome(project_of(config)) == expected


def test_a_damaged_ledger_stops_the_iteration_before_any_work(make_config: MakeConfig) -> None:
    config = make_config()
    iterate(str(config))
    ledger = project_of(config).ledger
    ledger.write_bytes(b"no ledger" * 1_000)
    seen: list[str] = []
    with (
        progress.listening(lambda report: seen.append(report.stage)),
        pytest.raises(LedgerError, match="rlm doctor --rebuild-ledger"),
    ):
        iterate(str(config))
    assert seen == []
    command = [sys.executable, "-m", "rlm_cli.main", "doctor", "--rebuild-ledger", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert "it has iterations 1" in done.stdout
    with open_ledger(ledger, create=False) as healed:
        assert healed.next_iteration() == 2
    assert iterate(str(config))["decision"]["iteration"] == 2


def test_nothing_is_measured_with_a_clock_that_may_jump(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config()
    real, calls = time.time, []

    def jumping() -> float:
        calls.append(1)
        return real() + (86_400 if len(calls) % 2 else -86_400)

    monkeypatch.setattr(time, "time", jumping)
    summary = iterate(str(config))["summary"]
    assert 0 < summary["duration_s"] < 600
    assert 0 <= summary["train_s"] < 600
    assert summary["infrastructure_faults"] == 0
