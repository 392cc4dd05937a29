"""Iterations of the default model by the command line, by a worker, and by a worker for which a Dask cluster verifies:
the ledgers end with the same contents."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_core.sources import read_problems
from rlm_core.state.project import Project
from tests import tiny
from tests.chaos.kills import without_measured
from tests.served.machine import Machine

ITERATIONS = 3
_EXAM = 12
"""Problems of each suite."""
_PATIENCE_S = 900
"""For an iteration; some 50 s when the machine is quiet."""
_OF_THE_CLOCK = {"ended", "time"}
"""Columns with times of day."""
_OF_SPEED = {"rollout_tokens_per_s", "verify_latency", "train_s", "stage_seconds"}
"""Parts of a summary that differ from run to run."""


def settings(directory: Path) -> dict[str, Any]:
    smoke = yaml.safe_load((Path(__file__).parents[1] / "slow" / "smoke.yaml").read_text())
    for kind in ("benchmark", "holdout"):
        problems = read_problems(f"bank:{kind}[starter]")[:_EXAM]
        smoke["evaluate"][kind] = tiny.write_problems(directory / f"{kind}.jsonl", problems)
    smoke["train"] |= {"learning_rate": 2.0e-4, "rehearsal": {"share": 0.2}}
    smoke["gate"] = {"rule": "threshold", "threshold": 0.0, "holdout_margin": 1.0}  # so that each goes on from the last
    return dict(smoke)


def contents(ledger: Path) -> dict[str, list[dict[str, Any]]]:
    """What is in each table, but for what is measured and where files are."""
    connection = sqlite3.connect(ledger)
    connection.row_factory = sqlite3.Row
    tables = [name for [name] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {table: [_lasting(dict(row)) for row in connection.execute(f"SELECT * FROM {table}")] for table in tables}
    connection.close()
    return {table: sorted(rows, key=json.dumps) for table, rows in found.items()}


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in _OF_THE_CLOCK}
    for name, value in kept.items():
        if isinstance(value, str) and value[:1] in ("{", "["):
            kept[name] = json.loads(value)
    if isinstance(summary := kept.get("summary"), dict):
        kept["summary"] = {name: value for name, value in summary.items() if name not in _OF_SPEED}
    lasting: dict[str, Any] = without_measured(kept)
    return lasting


@pytest.mark.timeout(3_600)
def test_three_ways_end_in_the_same_ledger(machine: Machine, tmp_path: Path) -> None:
    def by_the_command(config: Path) -> None:
        machine.follow("rlm run", "--config", str(config), timeout_s=_PATIENCE_S)

    def by_a_worker(config: Path) -> None:
        machine.follow(
            "prefect deployment run iterate/iterate --watch", "--param", f"config={config}", timeout_s=_PATIENCE_S
        )

    ways: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
        "command": (by_the_command, {}),
        "worker": (by_a_worker, {}),
        "cluster": (by_a_worker, {"prefect": {"verify_runner": "dask"}}),
    }
    base = settings(tmp_path)
    project = tmp_path / "project"
    config = tmp_path / "config.yaml"
    ledgers = {}
    for way, (run, more) in ways.items():
        config.write_text(yaml.safe_dump({"project": str(project), **base, **more}))
        for _ in range(ITERATIONS):
            run(config)
        ledgers[way] = contents(Project(project).ledger)
        shutil.rmtree(project)
    assert len(ledgers["command"]["iterations"]) == ITERATIONS
    assert len({row["sha256"] for row in ledgers["command"]["adapters"]}) == ITERATIONS
    assert ledgers["worker"] == ledgers["command"]
    assert ledgers["cluster"] == ledgers["command"]
