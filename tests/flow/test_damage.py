"""Stored results whose files are gone, cut or altered: what made them runs again, says so, and nothing else does."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.iterate import iterate
from rlm_core import progress
from rlm_core.errors import Interrupted
from rlm_core.progress import Progress
from rlm_core.state.project import Project
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
        "rollout results/rollout-*": cut,
        "train adapter/adapters.safetensors": altered,
    },
    {
        "filter_problems problems.jsonl": with_a_broken_line,
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
        if report.stage == "evaluate" and "holdout" in report.part and not report.part.endswith(" base"):
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
        for what, damage in damages.items():
            damage(sorted(run.glob(what.split()[1]))[0])
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
