"""`rlm prune` and `rlm rollback`: nothing goes that can still be needed, and every way back leads somewhere."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from rlm_core.files import write_record, write_text
from rlm_core.model.adapters import read_adapter
from rlm_core.records import AdapterRef, Outcome
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import keep_newest, removable, size_of
from tests.command import Rlm, Settings, assert_refused, write
from tests.samples.ledger import BASE, decision, report


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Accepted, rejected, accepted, two on probation; an iteration that has not ended; all with all their files."""
    project = Project(tmp_path / "project")
    learner = incumbent = None
    outcomes: list[Outcome] = ["accepted", "rejected", "accepted", "probation", "probation"]
    with open_ledger(project.ledger) as ledger:
        ledger.begin(BASE, None)
        for number, outcome in enumerate([*outcomes, None], 1):
            run = project.run(number)
            for name in ("adapter/adapters.safetensors", "adapter/adapter_config.json"):
                write_text(run / name, f"{number}" if name.endswith("tensors") else "{}")
            for name in ("results/key", "rollouts/000.jsonl", "verdicts/000.jsonl", "gate.md"):
                write_text(run / name, "x" * 1_000)
            _examine(run, "base")
            _examine(run, read_adapter(run / "adapter").sha256)
            if outcome is None:
                break
            candidate = read_adapter(run / "adapter")
            made = decision(number, False, incumbent=incumbent, outcome=outcome, learner=learner)
            ledger.commit(made.model_copy(update={"candidate": candidate}), 0.3, [], {"pass_rate": 0.5})
            learner = ledger.lineage().learner
            incumbent = ledger.incumbent()
    return project


def _examine(run: Path, policy: str) -> None:
    stem = run / "exams" / policy
    write_record(Path(f"{stem}.json"), report().model_copy(update={"policy": policy}))
    for kind in ("answers", "verdicts"):
        write_text(Path(f"{stem}.{kind}.jsonl"), "x" * 1_000)


def files(project: Project) -> set[str]:
    return {str(path.relative_to(project.root)) for path in (project.root / "runs").rglob("*") if path.is_file()}


def found(project: Project, keep: int) -> set[str]:
    with open_ledger(project.ledger) as ledger:
        return {str(item.path.relative_to(project.root / "runs")) for item in removable(project, ledger, keep)}


def test_adapters_go_that_nothing_leads_to(project: Project) -> None:
    adapters = {name for name in found(project, keep=0) if name.endswith("adapter")}
    assert adapters == {"0002/adapter", "0004/adapter"}


def test_of_the_newest_iterations_everything_stays(project: Project) -> None:
    assert {name for name in found(project, keep=3) if name.endswith("adapter")} == {"0002/adapter"}
    assert found(project, keep=5) == set()


def test_old_answers_go_but_for_the_newest_and_for_what_has_not_ended(project: Project) -> None:
    old = {f"000{number}/{name}" for number in (1, 2, 3) for name in ("results", "rollouts", "verdicts")}
    assert found(project, keep=2) == {*old, "0002/adapter", "0002/exams"}
    assert not [name for name in found(project, keep=0) if name.startswith("0006")]


def test_exam_answers_stay_that_the_next_gate_may_show(project: Project) -> None:
    """Those of the base and of each policy that can still be compared; of the others the reports alone."""
    keep_newest(project, 2, lambda _: None)
    kept = {path.name.partition(".")[0] for path in (project.run(2) / "exams").glob("*.jsonl")}
    assert kept == {"base"}
    assert len(list((project.run(2) / "exams").glob("*.json"))) == 2
    assert len(list((project.run(3) / "exams").glob("*.jsonl"))) == 4


def test_what_a_project_takes_stops_growing(tmp_path: Path) -> None:
    project, sizes = Project(tmp_path / "project"), list[int]()
    with open_ledger(project.ledger) as ledger:
        ledger.begin(BASE, None)
    for number in range(1, 9):
        run = project.run(number)
        for name in ("adapter/adapters.safetensors", "adapter/adapter_config.json", "rollouts/000.jsonl"):
            write_text(run / name, f"{number}" * 100_000)
        _examine(run, read_adapter(run / "adapter").sha256)
        with open_ledger(project.ledger) as ledger:
            rejected = decision(number, False).model_copy(update={"candidate": read_adapter(run / "adapter")})
            ledger.commit(rejected, 0.3, [], {})
        keep_newest(project, 3, lambda _: None)
        sizes.append(size_of(project.runs))
    growth = [after - before for before, after in pairwise(sizes)]
    assert min(growth[:2]) > 300_000
    assert max(growth[2:]) < 2_000


def test_parts_of_exams_go_that_nobody_goes_on_with(project: Project) -> None:
    """All of iterations that have ended, however new, none of the one that has not; of exams by hand the old ones."""
    parts = [project.root / name / "0.part" for name in ("exams", "runs/0005/exams", "runs/0006/exams")]
    old = project.root / "exams" / "old.part"
    for path in (*parts, old):
        write_text(path, "x" * 1_000)
    os.utime(old, (0, 0))
    said: list[str] = []
    keep_newest(project, 5, said.append)
    assert said == ["removed 2 items, 0.0 MB, that nothing needs"]
    assert [path.exists() for path in (*parts, old)] == [True, False, True, False]


def test_after_a_rollback_there_is_a_way_forward_still(project: Project) -> None:
    with open_ledger(project.ledger) as ledger:
        ledger.roll_back(1)
    adapters = {name for name in found(project, keep=0) if name.endswith("adapter")}
    assert adapters == {"0002/adapter", "0004/adapter", "0005/adapter"}  # no longer on probation


def test_the_first_adapter_of_a_project_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = AdapterRef(path=str(project.run(1) / "adapter"), sha256="f" * 64)
    write_text(Path(first.path, "adapters.safetensors"), "x")
    with open_ledger(project.ledger) as ledger:
        ledger.begin(BASE, first)
        ledger.commit(decision(1, False), 0.3, [], {})
    assert found(project, keep=0) == set()


def test_prune_shows_first_and_removes_when_told(
    rlm: Rlm,
    settings: Settings,
    tmp_path: Path,
    project: Project,
) -> None:
    config, before = write(tmp_path, settings), files(project)
    done = rlm("prune", "-c", config, "--keep", "2")
    assert done.code == 0, done.err
    assert "runs/0002/adapter" in done.out
    assert "would remove 11 items" in done.out
    assert files(project) == before
    done = rlm("prune", "-c", config, "--keep", "2", "--yes")
    assert "removed 11 items" in done.out
    gone = before - files(project)
    assert {name.split("/")[2] for name in gone} == {"adapter", "exams", "results", "rollouts", "verdicts"}
    assert "would remove 0 items" in rlm("prune", "-c", config, "--keep", "2").out


def test_the_setting_keeps_the_newest_and_says_what_went(project: Project) -> None:
    said: list[str] = []
    before = files(project)
    keep_newest(project, None, said.append)
    assert (files(project), said) == (before, [])
    keep_newest(project, 2, said.append)
    assert found(project, keep=2) == set()
    assert before - files(project)
    assert said == ["removed 11 items, 0.0 MB, that nothing needs"]
    keep_newest(project, 2, said.append)
    assert len(said) == 1


def test_what_cannot_be_removed_does_not_fail_the_iteration(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    said: list[str] = []
    keep_newest(project, 2, said.append)
    assert said[0].startswith(f"old files are not removed: cannot remove {project.root}/runs/")


def test_what_goes_while_a_directory_is_measured_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an iteration to ask for the status."""
    for name in "abc":
        (tmp_path / name).write_text("x" * 10)
    look = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path.name == "b":
            path.unlink()
        return look(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert size_of(tmp_path) == 20


def test_status_says_how_much_disk_a_project_takes(
    rlm: Rlm, settings: Settings, tmp_path: Path, project: Project
) -> None:
    (project.run(1) / "big").write_bytes(b"x" * 2_000_000)
    assert "2.1 MB" in rlm("status", "-c", write(tmp_path, settings)).out


def test_prune_and_rollback_wait_for_nobody(
    rlm: Rlm,
    settings: Settings,
    tmp_path: Path,
    project: Project,
) -> None:
    config = write(tmp_path, settings)
    with project.held():
        assert_refused(rlm("prune", "-c", config, "--yes"), 3, "in use")
        assert_refused(rlm("rollback", "1", "-c", config), 3, "in use")


def test_a_rollback_is_said_and_seen_in_status_and_history(
    rlm: Rlm,
    settings: Settings,
    tmp_path: Path,
    project: Project,
) -> None:
    config = write(tmp_path, settings)
    assert project.ledger.exists()
    assert "on probation" in rlm("status", "-c", config).out
    done = rlm("rollback", "1", "-c", config)
    assert done.code == 0, done.err
    assert "runs/0001/adapter; iteration 6 starts from it" in done.out
    shown = rlm("status", "-c", config).out
    assert "on probation" not in shown
    assert "after iteration 5" in shown
    assert "rollback" in rlm("history", "-c", config).out
    assert "base model itself" in rlm("rollback", "0", "-c", config).out


def test_a_rollback_that_leads_nowhere_is_refused(
    rlm: Rlm,
    settings: Settings,
    tmp_path: Path,
    project: Project,
) -> None:
    config = write(tmp_path, settings)
    assert_refused(rlm("rollback", "2", "-c", config), 2, "a way back to 0, 1, 3")
    (project.run(1) / "adapter" / "adapters.safetensors").write_text("other")
    assert_refused(rlm("rollback", "1", "-c", config), 2, "runs/0001/adapter is damaged")
    with open_ledger(project.ledger) as ledger:
        assert ledger.incumbent() == read_adapter(project.run(3) / "adapter")
