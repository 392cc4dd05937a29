"""Stored results whose files are gone, cut or altered: what made them runs again, says so, and nothing else does."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer

from flows.iterate import iterate
from rlm_core import progress
from rlm_core.errors import Interrupted, StageFailed
from rlm_core.files import sealed, write_text
from rlm_core.progress import Progress
from rlm_core.records import FileRef, StageResult
from rlm_core.state.project import Project
from tasks.caching import RESULTS, damage
from tasks.storage import ResultFiles
from tests.chaos.kills import outcome
from tests.conftest import MakeConfig


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def with_a_broken_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], b'{"broken": \n', *lines[1:]]))


Damage = Callable[[Path], None]
ROUNDS: list[dict[str, Damage]] = [
    {
        "generate proposals.rejections.jsonl": emptied,
        "rollout rollouts/001.jsonl": altered,
        "train metrics.jsonl": with_a_broken_line,
    },
    {
        "mutate mutants.jsonl": gone,
        "generate results/generate-*": altered,
        "rollout results/rollout-*": cut,
        "train adapter/adapters.safetensors": altered,
    },
    {
        "filter problems.jsonl": with_a_broken_line,
        "rollout rollouts/002.jsonl": gone,
        "train adapter/optimizer.safetensors": cut,
    },
    {"train results/train-*": emptied},
    {"verify verdicts/000.jsonl": with_a_broken_line},
]
"""The stage that runs again, a file of it, and what happens to it; several at a time, to be quick."""


def run_until_the_last_exam(config: Path) -> list[str]:
    """Run an iteration until the candidate has sat the benchmark; the names of the results that are there then."""

    def stop(report: Progress) -> None:
        if report.stage == "evaluate" and "holdout" in report.part and " base " not in report.part:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop):
        iterate(str(config))
    return sorted(path.name for path in results_of(config).iterdir())


def results_of(config: Path) -> Path:
    return Project(config.with_name("project")).run(1) / "results"


@pytest.mark.timeout(600)
def test_what_is_damaged_is_made_again_and_says_so(make_config: MakeConfig, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config()
    run = results_of(config).parent
    run_until_the_last_exam(config)
    for damages in ROUNDS:
        stages = sorted(what.split()[0] for what in damages)
        before = {path: path.stat().st_mtime_ns for path in results_of(config).iterdir()}
        for what, do in damages.items():
            do(sorted(run.glob(what.split()[1]))[0])
        caplog.clear()
        run_until_the_last_exam(config)
        told = [record.getMessage() for record in caplog.records if "runs again" in record.getMessage()]
        assert sorted(line.split(" runs again: ")[0] for line in told) == stages, told
        now = {path: path.stat().st_mtime_ns for path in results_of(config).glob("*-*")}
        again = {path.name.split("-")[0] for path in now if now[path] != before.get(path)}
        # Verdicts have times in them, so made again they are others than those that were trained on.
        assert again == {*stages} | ({"train"} if "verify" in stages else set())
    iterate(str(config))
    project = Project(config.with_name("project"))
    damaged = outcome(project)
    shutil.rmtree(project.root)
    iterate(str(config))
    assert damaged == outcome(project)


def test_a_project_may_be_moved_within_an_iteration(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config()
    names = run_until_the_last_exam(config)
    project = Project(config.with_name("project"))
    project.root.rename(tmp_path / "elsewhere")
    config.write_text(config.read_text().replace(str(project.root), str(tmp_path / "elsewhere")))
    seen: list[str] = []

    def listen(report: Progress) -> None:
        if report.done and "found" not in report.figures:
            seen.append(report.stage)

    with progress.listening(listen):
        iterate(str(config))
    assert set(seen) == {"evaluate", "evaluate_verify"}
    moved = Project(tmp_path / "elsewhere")
    assert {*names} < {path.name for path in (moved.run(1) / "results").iterdir()}
    assert not project.root.exists()


def stored_result(directory: Path) -> Path:
    """A stage's result as Prefect stores it in an iteration's directory, with the file that it names."""
    made = FileRef.of(write_text(directory / "made.jsonl", "{}\n"))
    result = StageResult(files={"made": made}, figures={"useful_groups": 3}, seconds=1.5).within(directory)
    storage = ResultFiles(basepath=str(directory / RESULTS))
    ResultStore(result_storage=storage, serializer=JSONSerializer()).write(
        result.model_dump(mode="json"), key="train-1", holder="test"
    )
    return directory / RESULTS / "train-1"


def test_no_bit_of_a_stored_result_may_differ(tmp_path: Path) -> None:
    stored = stored_result(tmp_path)
    assert damage(tmp_path, stored) is None
    content = stored.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        stored.write_bytes(flipped)
        assert damage(tmp_path, stored) == "its record is not what was written", bit


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_is_in_its_file_a_stored_result_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "any").write_bytes(content)
    (tmp_path / "sealed").write_bytes(sealed(content + b"}"))
    for name in ("any", "sealed"):
        reason = damage(tmp_path, tmp_path / name)
        assert reason is not None and "\n" not in reason


def test_a_kill_within_the_writing_of_a_result_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_result(tmp_path)
    before = stored.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("the power went")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StageFailed, match=r"cannot write .*train-1: the power went"):
        ResultFiles(basepath=str(stored.parent)).write_path(stored.name, b'{"metadata": {}, "result": "2"}')
    assert stored.read_bytes() == before
