"""What benchmarks write: configs that are valid, copies, figures; a benchmark itself takes too long for a test."""

import importlib
import os
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from rlm_core.config_file import load_config

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(("module", "arguments"), [("iteration", ()), ("scale_stubs", (10,))])
def test_a_benchmark_writes_a_config_that_is_understood(
    module: str, arguments: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    path = importlib.import_module(module).write_config(tmp_path / "project", *arguments)
    assert Path(load_config(path).project).is_relative_to(tmp_path)


def test_every_arm_of_the_learning_curve_is_a_config_that_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    learn = importlib.import_module("learn")
    monkeypatch.setattr(learn, "CONFIG", BENCH.parent / learn.CONFIG)
    monkeypatch.chdir(tmp_path)
    arms = {name: load_config(learn.settings_of(name)) for name in learn.ARMS}
    assert {name: arm.seed for name, arm in arms.items()} == {"seed-1": 1, "seed-2": 2, "control": 1}
    assert [name for name, arm in arms.items() if arm.train.shuffle_rewards] == ["control"]
    assert len({arm.project for arm in arms.values()}) == len(arms)


def test_a_copy_that_is_changed_has_what_the_gates_tests_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it they fail on the unchanged copy, and nothing is tried."""
    monkeypatch.syspath_prepend(BENCH)
    mutants = importlib.import_module("mutants")
    gate = "rlm_core/gate.py"
    mutants.copy(tmp_path, gate, mutants.TARGETS[gate])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "false_accept_is_one or strict"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*command, *mutants.TARGETS[gate].tests], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_module_that_is_changed_and_its_tests_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    targets = importlib.import_module("mutants").TARGETS
    named = [*targets, *(name for target in targets.values() for name in target.tests)]
    assert [name for name in named if not (BENCH.parent / name).is_file()] == []


@pytest.mark.parametrize(("value", "code"), [(0.85, 0), (0.84, 1)])
def test_a_benchmark_ends_with_its_figures_and_1_when_one_missed_its_goal(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    figures = importlib.import_module("figures")
    with pytest.raises(SystemExit) as ended:
        figures.finish([figures.Figure("share", value, 0.85), figures.Figure("seconds", 1.5, 300, "at most")])
    assert ended.value.code == code
    assert capsys.readouterr().out == f"share: {value:.2f} (goal at least 0.85)\nseconds: 1.50 (goal at most 300)\n"


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.name)
def test_a_benchmark_with_a_command_of_its_own_ends_with_figures(path: Path) -> None:
    source = path.read_text()
    assert ("__main__" in source) == ("    finish(" in source)


def test_copies_of_a_run_are_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event names its run within a text; copies that kept it would be taken for the first run's."""
    monkeypatch.syspath_prepend(BENCH)
    replay = importlib.import_module("scale_replay")
    database, run, task = tmp_path / "prefect.db", str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
    columns = {"flow_run": "id", "task_run": "id, flow_run_id", "events": "id, resource_id"}
    others = {"flow_run_state": "flow_run_id", "task_run_state": "task_run_id", "log": "flow_run_id"}
    columns |= others | {"artifact": "flow_run_id", "event_resources": "resource_id"}
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, names in columns.items():
            connection.execute(f"CREATE TABLE {table} ({names})")
        connection.execute("INSERT INTO flow_run VALUES (?)", (run,))
        connection.execute("INSERT INTO task_run VALUES (?, ?)", (task, run))
        for number, name in enumerate((f"prefect.flow-run.{run}", f"prefect.task-run.{task}"), 3):
            connection.execute("INSERT INTO events VALUES (?, ?)", (str(uuid.UUID(int=number)), name))
    for copies in (2, 3):
        replay.into_prefect(database, run, copies)
    with closing(sqlite3.connect(database)) as connection:
        counts = [connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in ("flow_run", "events")]
    assert counts == [6, 12]
