"""One iteration that was run, put again and again into its ledger and into Prefect's database, as if it were others."""

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rlm_core.files import digest
from rlm_core.problems import Problem
from rlm_core.records import AdapterRef, GateDecision
from rlm_core.state.ledger import Ledger, ProblemOutcome

REPEATED = 0.5
"""Share of an iteration's problems that earlier ones had, too."""
_ACCEPTED_EVERY = 10
_TABLES = ("flow_run", "flow_run_state", "task_run", "task_run_state", "log", "artifact", "events", "event_resources")
_AT_ONCE = 900
"""Values in one statement: SQLite has a limit."""


def into_ledger(ledger: Ledger, number: int, problems: list[Problem], pool: list[Problem]) -> None:
    """Commit iteration `number`, which is like the last one of the ledger.

    Args:
        problems: of which each gets other words here.
        pool: those that come again in each iteration.
    """
    like = ledger.history()[0]
    lineage = ledger.lineage()
    outcome = "accepted" if number % _ACCEPTED_EVERY == 0 else "rejected"
    update = {
        "iteration": number,
        "outcome": outcome,
        "candidate": AdapterRef(path=f"/nowhere/{number}", sha256=digest(number)),
        "incumbent": lineage.incumbent,
        "learner": lineage.learner,
    }
    decision: GateDecision = like.decision.model_copy(update=update)
    new = [
        each.model_copy(update={"prompt": f"{each.prompt} Iteration {number}."})
        for each in problems[: round(len(problems) * (1 - REPEATED))]
    ]
    asked = [*new, *pool[: len(problems) - len(new)]]
    outcomes = [
        ProblemOutcome(
            problem=each, rollouts=8, passed=place % 9, passed_rollout_id=f"{number}-{place}", passed_text="def f(): …"
        )
        for place, each in enumerate(asked)
    ]
    ledger.commit(decision, 0.3, outcomes, {**like.summary, "iteration": number}, 2_000)


def into_prefect(database: Path, flow_run: str, copies: int) -> None:
    """Copy a flow run with its task runs, states, logs, artifacts and events: all rows with new ids."""
    with closing(sqlite3.connect(database, timeout=120)) as connection, connection:
        rows = {table: list(_rows_of(connection, table, flow_run)) for table in _TABLES}
        ids = {str(row["id"]) for each in rows.values() for row in each if row.get("id")} | {flow_run}
        for _ in range(copies):
            others = {old: str(uuid.uuid4()) for old in ids}
            for table, each in rows.items():
                for row in each:
                    names = ", ".join(f'"{name}"' for name in row)
                    marks = ", ".join("?" * len(row))
                    values = [_renamed(value, others) for value in row.values()]
                    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)


def _renamed(value: object, others: dict[str, str]) -> object:
    if not isinstance(value, str):
        return value
    kind, dot, last = value.rpartition(".")  # such as prefect.flow-run.ID, by which events are found again
    if last in others:
        return f"{kind}{dot}{others[last]}"
    if len(value) < 36 or value[:1] not in "{[":
        return value
    for old, new in others.items():
        value = value.replace(old, new)
    return value


def _rows_of(connection: sqlite3.Connection, table: str, flow_run: str) -> Iterator[dict[str, object]]:
    """The rows of a table that belong to a flow run."""
    tasks = [row[0] for row in connection.execute("SELECT id FROM task_run WHERE flow_run_id = ?", (flow_run,))]
    where = {
        "flow_run": ("id", [flow_run]),
        "task_run": ("flow_run_id", [flow_run]),
        "flow_run_state": ("flow_run_id", [flow_run]),
        "task_run_state": ("task_run_id", tasks),
        "log": ("flow_run_id", [flow_run]),
        "artifact": ("flow_run_id", [flow_run]),
        "events": ("resource_id", [f"prefect.flow-run.{flow_run}", *(f"prefect.task-run.{task}" for task in tasks)]),
        "event_resources": ("resource_id", [f"prefect.flow-run.{flow_run}"]),
    }
    column, values = where[table]
    for first in range(0, len(values), _AT_ONCE):
        some = values[first : first + _AT_ONCE]
        found = connection.execute(f"SELECT * FROM {table} WHERE {column} IN ({', '.join('?' * len(some))})", some)
        names = [described[0] for described in found.description]
        for row in found:
            yield dict(zip(names, row, strict=True))


def size(database: Path) -> int:
    """Bytes of a database, with what is not written back yet."""
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
