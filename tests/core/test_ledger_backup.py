"""A damaged ledger comes back from its backup and the run directories; a moved one finds its files."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlm_core.config import Config
from rlm_core.errors import LedgerError, StageFailed
from rlm_core.files import write_json, write_jsonl, write_record
from rlm_core.model.base_model import fingerprint
from rlm_core.problems import Problem
from rlm_core.records import AdapterRef, FileRef, IterationResults, StageResult, TrainReport
from rlm_core.state.ledger import Base, open_ledger
from rlm_core.state.ledger_backup import back_up, back_up_if_behind, rebuild
from rlm_core.state.project import Project
from rlm_core.summary import problem_outcomes, summarise
from tests.samples.ended import answer
from tests.samples.ledger import decision

TOLD = ("next_iteration", "incumbent", "base", "past_scores", "corpus_size")


@pytest.fixture
def project(tmp_path: Path, tiny_model: Path) -> Project:
    """A project with three finished iterations, the first two accepted, and one that was not decided."""
    project = Project(tmp_path / "project")
    config = Config.parse({"model": {"base": str(tiny_model)}})
    with open_ledger(project.ledger) as ledger:
        ledger.begin(Base(name=str(tiny_model), fingerprint=fingerprint(tiny_model)), None)
        for number, accepted in ((1, True), (2, True), (3, False)):
            _finish(project, number, accepted, config, ledger)
    write_json(project.run(4) / "config.json", config.dump())
    return project


def _finish(project: Project, number: int, accepted: bool, config: Config, ledger: Any) -> None:
    run = project.run(number)
    asked = Problem.model_validate(
        {"prompt": f"p{number}", "entry_point": "f", "cases": [{"input": [1], "expected": 2}]}
    )
    answers, verdicts = zip(*(answer(asked, index, "t", reward) for index, reward in enumerate((1, 0))), strict=True)
    summary = summarise(number, "base", _results(run), [asked], answers, verdicts, duration_s=2.0)
    candidate = AdapterRef(path=str(run / "adapter"), sha256=str(number) * 64)
    decided = decision(number, accepted, 0.3 + number / 10).model_copy(update={"candidate": candidate})
    write_json(run / "config.json", config.dump())
    write_jsonl(run / "problems.jsonl", [asked])
    write_jsonl(run / "rollouts" / "000.jsonl", answers)
    write_jsonl(run / "verdicts" / "000.jsonl", verdicts)
    write_record(run / "summary.json", summary)
    write_record(run / "decision.json", decided)
    ledger.commit(decided, 0.3, problem_outcomes([asked], answers, verdicts), summary.model_dump(mode="json"))
    if accepted:
        back_up(project)


def _results(run: Path) -> IterationResults:
    """One problem that was made, nothing rejected, one step of training."""
    report = TrainReport(candidate=None, steps=1, groups=1, useful_groups=1, reward_mean=0.5, tokens=4, duration_s=1)
    rejections = {"rejections": FileRef.of(write_jsonl(run / "problems.rejections.jsonl", []))}
    made = StageResult(files=rejections, figures={"problems": 1})
    return IterationResults(
        generated=made,
        mutated=made,
        filtered=made,
        rollouts=(StageResult(figures={"seconds": 1.0}),),
        verdicts=(),
        trained=StageResult(files={"report": FileRef.of(write_record(run / "train.json", report))}),
        exams=(),
    )


def told(project: Project) -> list[Any]:
    with open_ledger(project.ledger, create=False) as ledger:
        history = [(entry.number, entry.decision, entry.summary) for entry in ledger.history()]
        return [*(getattr(ledger, name)() for name in TOLD), ledger.corpus(9), ledger.tried_problems(9), history]


def damage(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)


def test_a_damaged_ledger_comes_back_from_backup_and_runs(project: Project) -> None:
    before = told(project)
    damage(project.ledger)
    with pytest.raises(LedgerError, match="--rebuild-ledger"):
        told(project)
    rebuilt = rebuild(project)
    assert (rebuilt.from_backup, rebuilt.iterations, rebuilt.left_out) == (True, (1, 2, 3), {})
    assert told(project) == before
    assert rebuilt.damaged is not None and rebuilt.damaged.read_bytes().endswith(b"xxx")


@pytest.mark.parametrize("harm", [damage, Path.unlink])
def test_without_a_whole_backup_it_comes_back_from_the_runs_alone(project: Project, harm: Any) -> None:
    before = told(project)
    damage(project.ledger)
    harm(project.ledger_backup)
    rebuilt = rebuild(project)
    assert (rebuilt.from_backup, rebuilt.iterations) == (False, (1, 2, 3))
    assert told(project) == before


def test_a_run_whose_settings_had_other_names_then_is_no_reason_to_leave_it_out(project: Project) -> None:
    before = told(project)
    for run in project.all_runs():
        settings = json.loads(run.config.read_text())
        write_json(run.config, settings | {"generate": {"from_model": 4}})
    damage(project.ledger)
    project.ledger_backup.unlink()
    assert rebuild(project).left_out == {}
    assert told(project) == before


def test_a_run_that_cannot_be_read_is_left_out_and_named(project: Project) -> None:
    project.ledger.unlink()
    project.ledger_backup.unlink()
    verdicts = project.run(2) / "verdicts" / "000.jsonl"
    verdicts.write_text("{\n" + verdicts.read_text())
    rebuilt = rebuild(project)
    assert rebuilt.iterations == (1, 3)
    assert f"{verdicts}:1" in rebuilt.left_out["0002"]


def test_with_nothing_to_make_it_from_the_old_one_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    damage(project.ledger)
    content = project.ledger.read_bytes()
    with pytest.raises(LedgerError, match="no finished iteration"):
        rebuild(project)
    assert project.ledger.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


@pytest.mark.parametrize("loss", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["unlinked", "empty"])
@pytest.mark.parametrize("trace", ["backup", "runs"])
def test_a_lost_ledger_is_not_taken_for_a_new_project(project: Project, loss: Any, trace: str) -> None:
    before = told(project)
    loss(project.ledger)
    if trace == "backup":
        shutil.move(project.runs, project.root / "elsewhere")
    else:
        project.ledger_backup.unlink()
    for create in (True, False):
        with (
            pytest.raises(LedgerError, match=r"ledger\.sqlite is missing or empty, but .*--rebuild-ledger"),
            open_ledger(project.ledger, create=create),
        ):
            pass
    with suppress(FileNotFoundError):
        shutil.move(project.root / "elsewhere", project.runs)
    assert rebuild(project).iterations == (1, 2, 3)
    assert told(project) == before


def test_an_empty_backup_is_none(project: Project) -> None:
    before = told(project)
    damage(project.ledger)
    project.ledger_backup.write_bytes(b"")
    assert not rebuild(project).from_backup
    assert told(project) == before


@pytest.mark.parametrize("moment", ["aside", "in place"])
def test_a_rebuilding_that_is_killed_leaves_a_ledger_that_is_known_to_be_damaged(
    project: Project, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before = told(project)
    damage(project.ledger)
    content = project.ledger.read_bytes()

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(f"rlm_core.state.ledger_backup.{'os.link' if moment == 'aside' else 'move_into_place'}", kill)
        rebuild(project)
    assert project.ledger.read_bytes() == content
    rebuild(project)
    assert told(project) == before


def test_where_the_damaged_ledger_cannot_be_kept_it_stays_in_its_place(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    damage(project.ledger)
    content = project.ledger.read_bytes()
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StageFailed, match=r"cannot keep .*/ledger\.sqlite as ledger\.damaged-1\.sqlite: .*yourself"):
        rebuild(project)
    assert project.ledger.read_bytes() == content


@pytest.mark.parametrize("harm", [Path.unlink, damage, None], ids=["missing", "damaged", "older"])
def test_a_backup_that_lacks_an_accept_is_made_up_for(project: Project, harm: Any) -> None:
    """Of an iteration that was killed between its commit and the copy."""
    older = project.ledger_backup.read_bytes()
    with open_ledger(project.ledger) as ledger:
        ledger.commit(decision(4, accepted=True, score=0.9), 0.3, [], {})
    before = told(project)[:4]
    if harm is not None:
        harm(project.ledger_backup)
    else:
        assert project.ledger_backup.read_bytes() == older
    with open_ledger(project.ledger) as ledger:
        back_up_if_behind(project, ledger)
    copy = project.ledger_backup.stat().st_ino
    with open_ledger(project.ledger) as ledger:
        back_up_if_behind(project, ledger)
    assert project.ledger_backup.stat().st_ino == copy
    damage(project.ledger)
    rebuild(project)
    assert told(project)[:4] == before


def test_where_nothing_was_accepted_nothing_is_copied(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with open_ledger(project.ledger) as ledger:
        ledger.begin(Base(name="m", fingerprint="f"), None)
        back_up_if_behind(project, ledger)
    assert not project.ledger_backup.exists()


def test_a_damaged_ledger_is_not_copied_over_a_whole_backup(project: Project) -> None:
    content = project.ledger_backup.read_bytes()
    damage(project.ledger)
    with pytest.raises(LedgerError, match="--rebuild-ledger"):
        back_up(project)
    assert project.ledger_backup.read_bytes() == content


def test_a_killed_gate_leaves_a_ledger_without_its_iteration(project: Project) -> None:
    """The journal of a transaction that was cut off is undone when the ledger is opened again."""
    before = told(project)
    script = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1])\n"
        "c.execute('PRAGMA cache_spill = 1'); c.execute('PRAGMA cache_size = 1')\n"
        "c.execute('DELETE FROM problems'); c.execute('DELETE FROM iterations')\n"
        "c.executemany('INSERT INTO exams VALUES (?, ?)', [(str(i), 'x' * 3000) for i in range(500)])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(project.ledger)], check=False).returncode == -9
    assert project.ledger.with_name("ledger.sqlite-journal").exists()
    assert told(project) == before


@pytest.mark.parametrize("name", ["elsewhere", 'with "quotes" and ü'])
def test_a_moved_project_finds_its_adapter(project: Project, tmp_path: Path, name: str) -> None:
    moved = Project(tmp_path / name)
    shutil.move(project.root, moved.root)
    incumbent, history = told(moved)[1], told(moved)[-1]
    assert incumbent == AdapterRef(path=str(moved.run(2) / "adapter"), sha256="2" * 64)
    assert history[0][1].candidate.path == str(moved.run(1) / "adapter")
    with sqlite3.connect(moved.ledger) as connection:
        paths = [row[0] for row in connection.execute("SELECT path FROM adapters ORDER BY iteration")]
    assert paths == [str(moved.run(number) / "adapter") for number in (1, 2, 3)]
    shutil.move(moved.root, project.root)
    assert told(project)[1].path == str(project.run(2) / "adapter")


def test_paths_outside_of_the_project_stay_when_it_is_moved(tmp_path: Path) -> None:
    """Even one in which the project's own path is contained."""
    project, moved = Project(tmp_path / "a"), Project(tmp_path / "b")
    outside = AdapterRef(path=f"/mnt{project.root}/adapter", sha256="0" * 64)
    with open_ledger(project.ledger) as ledger:
        ledger.begin(Base(name="m", fingerprint="f"), outside)
    shutil.move(project.root, moved.root)
    with open_ledger(moved.ledger) as ledger:
        assert ledger.incumbent() == outside
