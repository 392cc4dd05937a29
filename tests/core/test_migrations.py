"""A ledger of version 1 is read as if it had been written by this version."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlm_core.errors import LedgerError
from rlm_core.records import AdapterRef, Lineage
from rlm_core.state.ledger import open_ledger
from rlm_core.state.migrations import SCHEMA_VERSION

VERSION_1 = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE iterations (
    number INTEGER PRIMARY KEY, ended TEXT NOT NULL, accepted INTEGER NOT NULL,
    decision TEXT NOT NULL, summary TEXT NOT NULL);
CREATE TABLE adapters (
    sha256 TEXT PRIMARY KEY, path TEXT NOT NULL, iteration INTEGER, source TEXT, accepted INTEGER NOT NULL);
CREATE TABLE exams (key TEXT PRIMARY KEY, report TEXT NOT NULL);
CREATE TABLE problems (
    id TEXT NOT NULL, iteration INTEGER NOT NULL, content TEXT NOT NULL,
    rollouts INTEGER NOT NULL, passed INTEGER NOT NULL, PRIMARY KEY (id, iteration));
CREATE TABLE corpus (
    rollout_id TEXT PRIMARY KEY, iteration INTEGER NOT NULL, problem_id TEXT NOT NULL, text TEXT NOT NULL);
PRAGMA user_version = 1;
"""


def adapter(iteration: int) -> dict[str, str]:
    return {"path": f"runs/{iteration:04d}/adapter", "sha256": str(iteration) * 64}


def old_decision(iteration: int, accepted: bool, incumbent: dict[str, str] | None) -> dict[str, Any]:
    compared = {
        "suite": "s",
        "suite_digest": "d",
        "incumbent": 0.25,
        "candidate": 0.5,
        "difference": 0.25,
        "interval": [0.0, 1.0],
        "p_value": 0.01,
        "better": 3,
        "worse": 1,
    }
    return {
        "iteration": iteration,
        "accepted": accepted,
        "rule": "paired",
        "reason": "because",
        "benchmark": compared,
        "holdout": compared,
        "candidate": adapter(iteration),
        "incumbent": incumbent,
    }


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Two accepted iterations and a rejected one, as version 1 wrote them."""
    path = tmp_path / "ledger.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    pointer = {"iteration": 2, "time": "2026-11-02", "adapter": adapter(2)}
    state = {
        "base": {"name": "model", "fingerprint": "f"},
        "inference": pointer,
        "trainer": pointer,
        "scores": {"suite": "d", "best": 0.6, "ema": 0.5},
    }
    with connection:
        connection.executemany(
            "INSERT INTO state VALUES (?, ?)", [(key, json.dumps(value)) for key, value in state.items()]
        )
        for number, accepted, incumbent in ((1, True, None), (2, True, adapter(1)), (3, False, adapter(2))):
            made = old_decision(number, accepted, incumbent)
            connection.execute(
                "INSERT INTO iterations VALUES (?, ?, ?, ?, ?)",
                (number, f"2026-11-0{number}", accepted, json.dumps(made), "{}"),
            )
            source = incumbent and incumbent["sha256"]
            connection.execute(
                "INSERT INTO adapters VALUES (?, ?, ?, ?, ?)", (*adapter(number).values(), number, source, accepted)
            )
    connection.close()
    return path


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    [found] = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(found)


def test_history_pointers_and_scores_are_as_they_were(old: Path) -> None:
    with open_ledger(old) as ledger:
        told = [(it.number, it.ended, it.decision.outcome, it.decision.learner) for it in ledger.history()]
        first, second = AdapterRef(**adapter(1)), AdapterRef(**adapter(2))
        assert told == [
            (1, "2026-11-01", "accepted", None),
            (2, "2026-11-02", "accepted", first),
            (3, "2026-11-03", "rejected", second),
        ]
        assert ledger.lineage() == Lineage(second, second, 0, 1)
        assert (ledger.past_scores("d").best, ledger.past_scores("d").ema) == (0.6, 0.5)
        assert ledger.next_iteration() == 4
        assert ledger.base() is not None


def test_there_is_a_way_back_to_what_version_1_accepted(old: Path) -> None:
    with open_ledger(old) as ledger:
        ledger.roll_back(1)
        assert ledger.incumbent() == AdapterRef(**adapter(1))
        ledger.roll_back(0)
        assert ledger.incumbent() is None


def test_a_ledger_that_was_begun_and_no_more_is_taken_on(old: Path) -> None:
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("DELETE FROM iterations")
        connection.execute("DELETE FROM state WHERE key = 'scores'")
    connection.close()
    with open_ledger(old) as ledger:
        assert ledger.incumbent() == AdapterRef(**adapter(2))


def test_the_tables_are_those_of_a_new_ledger(old: Path, tmp_path: Path) -> None:
    def tables(path: Path) -> set[tuple[str, ...]]:
        with open_ledger(path) as ledger:
            names = [row[0] for row in ledger._connection.execute("SELECT name FROM sqlite_master")]
            return {
                (name, *map(str, column))
                for name in names
                for column in ledger._connection.execute(f"PRAGMA table_info({name})")
            }

    assert tables(old) == tables(tmp_path / "new.sqlite")
    assert version(old) == SCHEMA_VERSION


def test_a_migration_that_fails_leaves_version_1(old: Path) -> None:
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("UPDATE iterations SET decision = '{}' WHERE number = 3")
    connection.close()
    with pytest.raises(LedgerError, match="damaged: an entry of schema 1"), open_ledger(old):
        pass
    assert version(old) == 1
    connection = sqlite3.connect(old)
    assert connection.execute("SELECT accepted FROM iterations").fetchall() == [(1,), (1,), (0,)]
    connection.close()
