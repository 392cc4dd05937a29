"""What benchmarks write: configs that are valid, and copies; a benchmark itself takes too long for a test."""

import importlib
import sqlite3
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
