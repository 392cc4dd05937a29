"""The ledger's tables, and what makes those of an earlier version into them."""

import json
import sqlite3
from collections.abc import Callable
from typing import Any

SCHEMA_VERSION = 2

_ITERATIONS = """
CREATE TABLE iterations (
    number INTEGER PRIMARY KEY, ended TEXT NOT NULL, outcome TEXT NOT NULL,
    decision TEXT NOT NULL, summary TEXT NOT NULL);
"""
_ADAPTERS = """
CREATE TABLE adapters (
    sha256 TEXT PRIMARY KEY, path TEXT NOT NULL, iteration INTEGER, source TEXT, outcome TEXT NOT NULL);
"""
_POINTERS = """
CREATE TABLE pointers (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, iteration INTEGER NOT NULL, time TEXT NOT NULL,
    cause TEXT NOT NULL, adapter TEXT NOT NULL, scores TEXT NOT NULL);
"""
_SCHEMA = f"""
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
{_ITERATIONS}{_ADAPTERS}{_POINTERS}
CREATE TABLE exams (key TEXT PRIMARY KEY, report TEXT NOT NULL);
CREATE TABLE problems (
    id TEXT NOT NULL, iteration INTEGER NOT NULL, content TEXT NOT NULL,
    rollouts INTEGER NOT NULL, passed INTEGER NOT NULL, PRIMARY KEY (id, iteration));
CREATE TABLE corpus (
    rollout_id TEXT PRIMARY KEY, iteration INTEGER NOT NULL, problem_id TEXT NOT NULL, text TEXT NOT NULL);
"""


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring tables of `version`, 0 for none, to `SCHEMA_VERSION`, all or nothing."""
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        # Another process may have done it since the version was read.
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            _run(connection, _SCHEMA)
        for step in _STEPS[version:] if version else ():
            step(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Not `executescript`, which would commit first."""
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def _three_outcomes_and_versioned_pointers(connection: sqlite3.Connection) -> None:
    """1 to 2: iterations and adapters were accepted or not; two pointers were kept as they last stood."""
    for table, create, columns in (
        ("iterations", _ITERATIONS, "number, ended, {}, decision, summary"),
        ("adapters", _ADAPTERS, "sha256, path, iteration, source, {}"),
    ):
        outcome = columns.format("CASE accepted WHEN 0 THEN 'rejected' ELSE 'accepted' END")
        connection.execute(f"ALTER TABLE {table} RENAME TO former")
        _run(connection, create)
        connection.execute(f"INSERT INTO {table} SELECT {outcome} FROM former")
        connection.execute("DROP TABLE former")
    _run(connection, _POINTERS)
    state = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM state")}
    if "inference" not in state:
        return
    rows = connection.execute("SELECT number, ended, decision FROM iterations ORDER BY number").fetchall()
    decisions = [(number, ended, json.loads(decision)) for number, ended, decision in rows]
    for number, _, decision in decisions:
        decision["outcome"] = "accepted" if decision.pop("accepted") else "rejected"
        decision["learner"] = decision["incumbent"]
        connection.execute("UPDATE iterations SET decision = ? WHERE number = ?", (json.dumps(decision), number))
    _point_back(connection, state, decisions)
    connection.execute("DELETE FROM state WHERE key IN ('inference', 'trainer', 'scores')")


def _point_back(connection: sqlite3.Connection, state: dict[str, Any], decisions: list[tuple[int, str, Any]]) -> None:
    """Write the moves that the pointers must have made. The scores are known of the last one only."""
    last = state["inference"]
    begun = decisions[0][2]["incumbent"] if decisions else last["adapter"]
    first = decisions[0][1] if decisions else last["time"]
    moves = [(0, first, "begun", begun)]
    moves += [(n, ended, "accepted", d["candidate"]) for n, ended, d in decisions if d["outcome"] == "accepted"]
    for number, time, cause, adapter in moves:
        scores = state.get("scores") if number == last["iteration"] else None
        connection.executemany(
            "INSERT INTO pointers (name, iteration, time, cause, adapter, scores) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (name, number, time, cause, json.dumps(adapter), json.dumps(scores))
                for name in ("accepted", "inference", "trainer")
            ],
        )


_STEPS: list[Callable[[sqlite3.Connection], None]] = [lambda _: None, _three_outcomes_and_versioned_pointers]
"""From each version to the next; a new ledger is made at the newest at once."""
