"""Verification in the processes of a local Dask or Ray cluster: the same verdicts, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL

import flows.stages
from flows.iterate import iterate
from flows.runners import verify_runner
from rlm_core import progress
from rlm_core.config import Config
from rlm_core.errors import Interrupted
from rlm_core.progress import Progress
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.runners import held_up

ROOT = Path(__file__).parents[2]
SHARDS = ["000", "001", "002"]
kinds = pytest.mark.parametrize("kind", ["dask", "ray"])


def verdicts(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Each shard's verdicts, without what is measured."""

    def steady(line: str) -> dict[str, Any]:
        verdict = json.loads(line)
        cases = [{**case, "latency_ms": None} for case in verdict["cases"]]
        return {**verdict, "cases": cases, "latency_s": None, "usage": None}

    return {
        path.stem: [steady(line) for line in path.read_text().splitlines()] for path in (run / "verdicts").iterdir()
    }


def results(run: Path) -> list[Path]:
    """The stored results of the verify tasks, whose names are their cache keys."""
    return sorted(path for path in (run / "results").iterdir() if path.name.startswith("verify-"))


def until_training(config: Path) -> list[Progress]:
    """Run an iteration that is stopped when its training begins; what was reported until then."""
    seen: list[Progress] = []

    def listen(report: Progress) -> None:
        seen.append(report)
        if report.stage == "train":
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(listen):
        iterate(str(config))
    return seen


def finished(seen: list[Progress]) -> dict[str, Progress]:
    """The last report of each shard that was verified."""
    return {report.part: report for report in seen if report.stage == "verify" and report.done}


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.1)
    return true()


def is_gone(process: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True


def processes_with(mark: str) -> list[str]:
    """Command lines of the processes that have this in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@kinds
def test_a_cluster_gives_the_verdicts_and_keys_that_threads_give_and_its_shards_are_seen(
    make_config: MakeConfig, tmp_path: Path, kind: str
) -> None:
    run = Project(tmp_path / "project").run(1)
    in_threads = finished(until_training(make_config(verify={"workers": 2})))
    expected, stored = verdicts(run), results(run)
    assert sorted(expected) == SHARDS
    for path in [*stored, *(run / "verdicts").iterdir()]:
        path.unlink()

    config = make_config(prefect={"verify_runner": kind}, verify={"workers": 1})
    assert finished(until_training(config)) == in_threads
    assert verdicts(run) == expected
    assert results(run) == stored

    seen: list[Progress] = []
    with progress.listening(seen.append):
        assert iterate(str(config))["summary"]["rollouts"] == 36
    found = {shard: report.figures.get("found") for shard, report in finished(seen).items()}
    assert found == {shard: report.total for shard, report in finished(seen).items()}, "stored shards are found"


def test_a_dask_cluster_of_the_flows_own_speaks_tls_on_this_machine_only() -> None:
    config = Config.parse({"verify": {"workers": 1}, "prefect": {"verify_runner": "dask"}})
    with verify_runner(config) as opened:
        runner: Any = opened.runner
        scheduler = runner.client.scheduler_info()
        addresses = [scheduler["address"], *scheduler["workers"]]
    assert len(addresses) == 2
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)


@kinds
def test_a_shard_whose_process_is_killed_and_one_with_a_fault_are_tried_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setattr(flows.stages, "verify", held_up.verify_with(held_up.killed_or_faulty))
    config = make_config(prefect={"verify_runner": kind}, verify={"workers": 2})
    assert iterate(str(config))["summary"]["rollouts"] == 36
    runs = tmp_path / "project" / "runs"
    tries = {shard: (runs / f"notes-{shard}").read_text().splitlines() for shard in SHARDS}
    assert {shard: len(lines) for shard, lines in tries.items()} == {"000": 2, "001": 2, "002": 1}
    assert {line.split()[1] for lines in tries.values() for line in lines} == {"1"}, "one sandbox in each process"
    assert str(os.getpid()) not in {line.split()[0] for lines in tries.values() for line in lines}
    assert wait_until(lambda: is_gone(int((runs / "sandbox").read_text())), 10)


def stopped_in_verification(config: Path, mark: str, number: int) -> tuple[int, str, int, list[Path]]:
    """Run `rlm run`, send a signal while a shard is at work.

    Returns:
        Exit code, what was written to stderr, the sandbox, and directories outside of the project that are left.
    """
    settings = {
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "MARK": mark,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.runners.held_up import main; main()", str(config)],
        cwd=ROOT,
        env={**os.environ, **settings},
        start_new_session=True,  # so that a signal can reach the whole group, as Ctrl-C in a terminal does
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    note = config.parent / "project" / "runs" / "sandbox"
    assert wait_until(note.exists, 90)
    sandbox = int(note.read_text())
    assert len(processes_with(f"MARK={mark}")) > 1
    assert not is_gone(sandbox)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    errors = process.communicate(timeout=60)[1]
    return process.returncode, errors, sandbox, list(Path("/tmp").glob(f"rlm-ray-{process.pid}-*"))


# Ctrl-C reaches Dask's processes too, and Ray has a handler of its own for SIGTERM: the harder case for each.
@pytest.mark.parametrize(("kind", "number"), [("dask", signal.SIGINT), ("ray", signal.SIGTERM)])
def test_a_stop_ends_the_shards_before_the_project_is_free_and_leaves_no_process(
    make_config: MakeConfig, tmp_path: Path, kind: str, number: int
) -> None:
    config = make_config(prefect={"verify_runner": kind}, verify={"workers": 1})
    mark = str(uuid.uuid4())
    code, errors, sandbox, directories = stopped_in_verification(config, mark, number)
    assert code == 130, errors
    assert errors.splitlines()[-1] == "rlm: stopped on request; the next run continues from what was finished"
    assert "Traceback" not in errors
    assert wait_until(lambda: processes_with(f"MARK={mark}") == [], 10), processes_with(f"MARK={mark}")
    assert is_gone(sandbox)
    assert directories == []
    with Project(tmp_path / "project").held():
        pass


@kinds
def test_kill_9_ends_the_shards_as_well(make_config: MakeConfig, kind: str) -> None:
    """Two helpers of Ray's, which run nothing of ours, stay for about a minute more."""
    config = make_config(prefect={"verify_runner": kind}, verify={"workers": 1})
    mark = str(uuid.uuid4())
    *_, sandbox, directories = stopped_in_verification(config, mark, signal.SIGKILL)

    def left() -> list[str]:
        return [process for process in processes_with(f"MARK={mark}") if "Agent" not in process]

    assert wait_until(lambda: left() == [], 20), left()
    for directory in directories:
        shutil.rmtree(directory)
    assert is_gone(sandbox)
