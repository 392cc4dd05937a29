"""The project's state: one SQLite file, changed by one transaction per gate. The only module that touches it."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rlm_core.errors import LedgerError, UsageError
from rlm_core.files import first_reason
from rlm_core.gate import PastScores
from rlm_core.problems import Problem
from rlm_core.records import AdapterRef, ExamReport, GateDecision, Record, Share

RecordT = TypeVar("RecordT", bound=Record)

SCHEMA_VERSION = 1

_SCHEMA = """
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
"""


class _Unreadable(Exception):
    """Something in the ledger is not what was stored."""


class ProblemOutcome(Record):
    """How the rollouts of one of an iteration's problems did, and one answer that passed, for the corpus."""

    problem: Problem
    rollouts: int
    passed: int
    passed_rollout_id: str | None = None
    passed_text: str | None = None


class CorpusAnswer(Record):
    """An earlier answer that passed."""

    problem: Problem
    rollout_id: str
    iteration: int
    text: str
    pass_rate: Share
    """Of the problem's rollouts, when it was last tried."""


class Base(Record):
    """The base model that a project is about."""

    name: str
    fingerprint: str


class Iteration(Record):
    """A finished iteration, as the ledger remembers it."""

    number: int
    ended: str
    decision: GateDecision
    summary: dict[str, Any]


class Ledger:
    """An open ledger. Use `open_ledger`."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    # ------------------------------------------------------------------------------------------------------- reading

    def next_iteration(self) -> int:
        """Number of the iteration to run: one more than the last that a gate decided."""
        [last] = self._connection.execute("SELECT COALESCE(MAX(number), 0) FROM iterations").fetchone()
        return last + 1

    def incumbent(self) -> AdapterRef | None:
        """The adapter that was last accepted, or None for the base model."""
        value = self._state("inference")
        return _stored(AdapterRef, value["adapter"]) if value and value["adapter"] else None

    def base(self) -> Base | None:
        """The base model that the project was begun with."""
        value = self._state("base")
        return _stored(Base, value) if value else None

    def past_scores(self, suite_digest: str | None = None) -> PastScores:
        """Best and moving average of the accepted benchmark scores; those on another suite do not count."""
        value = self._state("scores") or {}
        if suite_digest is not None and value.get("suite") != suite_digest:
            return PastScores()
        return PastScores(best=value.get("best"), ema=value.get("ema"))

    def exam(self, key: str) -> ExamReport | None:
        """An earlier report with this key."""
        row = self._connection.execute("SELECT report FROM exams WHERE key = ?", (key,)).fetchone()
        return _stored(ExamReport, _json(row[0])) if row else None

    def history(self) -> list[Iteration]:
        """All finished iterations, oldest first."""
        rows = self._connection.execute("SELECT number, ended, decision, summary FROM iterations ORDER BY number")
        return [
            Iteration(
                number=number,
                ended=ended,
                decision=_stored(GateDecision, _json(decision)),
                summary=_json(summary),
            )
            for number, ended, decision, summary in rows
        ]

    def problems(self) -> list[tuple[Problem, float]]:
        """Problems of earlier iterations, oldest first, each with the pass rate that was measured then."""
        rows = self._connection.execute("SELECT content, passed, rollouts FROM problems ORDER BY iteration, rowid")
        return [(_stored(Problem, _json(content)), passed / max(1, total)) for content, passed, total in rows]

    def corpus(self, before: int) -> list[CorpusAnswer]:
        """The answers from iterations before this one, oldest first, with what was known of their problems then."""
        rows = self._connection.execute(
            """
            SELECT problems.content, rollout_id, corpus.iteration, text, passed, rollouts
            FROM corpus JOIN problems ON problems.id = problem_id AND problems.iteration = (
                SELECT MAX(iteration) FROM problems WHERE id = problem_id AND rollouts > 0 AND iteration < :before)
            WHERE corpus.iteration < :before ORDER BY corpus.iteration, corpus.rowid
            """,
            {"before": before},
        )
        return [
            CorpusAnswer(
                problem=_stored(Problem, _json(content)),
                rollout_id=rollout_id,
                iteration=iteration,
                text=text,
                pass_rate=passed / rollouts,
            )
            for content, rollout_id, iteration, text, passed, rollouts in rows
        ]

    def corpus_size(self) -> int:
        """Answers in the corpus."""
        [count] = self._connection.execute("SELECT COUNT(*) FROM corpus").fetchone()
        return count

    def _state(self, key: str) -> Any:
        row = self._connection.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return _json(row[0]) if row else None

    # ------------------------------------------------------------------------------------------------------- writing

    def begin(self, base: Base, adapter: AdapterRef | None) -> None:
        """Bind a new project to its base model and first adapter; check an old one against its own.

        Raises:
            UsageError: the project was begun with another base.
        """
        known = self.base()
        if known is None:
            with self._connection:
                self._set("base", base.model_dump())
                self._point(0, adapter)
        elif known.fingerprint != base.fingerprint:
            raise UsageError(
                f"this project was begun with the base model {known.name!r}, the config names {base.name!r}; "
                "use another project directory for it"
            )

    def save_exam(self, key: str, report: ExamReport) -> None:
        """Keep a complete report for reuse."""
        assert report.complete
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO exams VALUES (?, ?)", (key, report.model_dump_json()))

    def commit(
        self,
        decision: GateDecision,
        ema_weight: float,
        outcomes: Sequence[ProblemOutcome],
        summary: dict[str, Any],
        corpus_size: int | None = None,
    ) -> None:
        """Record an iteration's end: decision, pointers, best scores, problems and corpus, all or nothing.

        Committing the same iteration again changes nothing.

        Args:
            corpus_size: answers that are kept at most; None keeps all.
        """
        with self._connection:
            done = self._connection.execute(
                "INSERT OR IGNORE INTO iterations VALUES (?, ?, ?, ?, ?)",
                (decision.iteration, _now(), decision.accepted, decision.model_dump_json(), json.dumps(summary)),
            )
            if done.rowcount == 0:
                return
            self._add_outcomes(decision.iteration, outcomes)
            self._bound_corpus(corpus_size)
            if decision.candidate is not None:
                self._connection.execute(
                    "INSERT OR REPLACE INTO adapters VALUES (?, ?, ?, ?, ?)",
                    (
                        decision.candidate.sha256,
                        decision.candidate.path,
                        decision.iteration,
                        decision.incumbent.sha256 if decision.incumbent else None,
                        decision.accepted,
                    ),
                )
            if decision.accepted:
                self._accept(decision, ema_weight)

    def _accept(self, decision: GateDecision, ema_weight: float) -> None:
        assert decision.benchmark is not None
        self._point(decision.iteration, decision.candidate)
        score, suite = decision.benchmark.candidate, decision.benchmark.suite_digest
        past = self.past_scores(suite)
        ema = score if past.ema is None else ema_weight * score + (1 - ema_weight) * past.ema
        self._set("scores", {"suite": suite, "best": max(score, past.best or 0.0), "ema": ema})

    def _add_outcomes(self, iteration: int, outcomes: Sequence[ProblemOutcome]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?)",
            [(o.problem.id, iteration, o.problem.model_dump_json(), o.rollouts, o.passed) for o in outcomes],
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO corpus VALUES (?, ?, ?, ?)",
            [(o.passed_rollout_id, iteration, o.problem.id, o.passed_text) for o in outcomes if o.passed_rollout_id],
        )

    def _bound_corpus(self, size: int | None) -> None:
        """Keep the newest answer of each problem, and of those so many: the oldest go, of equally old ones the easiest.

        Newest, because it is the likest to what the policy would say now; oldest and not easiest first, because hard
        problems would pile up that are no longer hard.
        """
        self._connection.execute(
            "DELETE FROM corpus WHERE rowid NOT IN (SELECT MAX(rowid) FROM corpus GROUP BY problem_id)"
        )
        self._connection.execute(
            """
            DELETE FROM corpus WHERE rowid NOT IN (
                SELECT corpus.rowid FROM corpus
                LEFT JOIN problems ON problems.id = problem_id AND problems.iteration = corpus.iteration
                ORDER BY corpus.iteration DESC, CAST(passed AS REAL) / rollouts, corpus.rowid LIMIT ?)
            """,
            (-1 if size is None else size,),
        )

    def _point(self, iteration: int, adapter: AdapterRef | None) -> None:
        """Move both weight pointers: which adapter answers, and which one training starts from."""
        pointer = {"iteration": iteration, "time": _now(), "adapter": adapter.model_dump() if adapter else None}
        for name in ("inference", "trainer"):
            self._set(name, pointer)

    def _set(self, key: str, value: Any) -> None:
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, json.dumps(value)))


@contextmanager
def open_ledger(path: Path, create: bool = True) -> Iterator[Ledger]:
    """Open a project's ledger for the time of the block.

    Raises:
        LedgerError: it is not there (and not to be created), locked, damaged, or from a newer version.
    """
    if not create and not path.is_file():
        raise LedgerError(f"{path} does not exist: no iteration was run in this project yet")
    connection = _connect(path)
    try:
        yield Ledger(connection)
    except sqlite3.Error as error:
        raise _ledger_error(path, error) from error
    except _Unreadable as error:
        raise LedgerError(f"{path} is damaged: {error}") from error
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=30)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    try:
        _migrate(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise _ledger_error(path, error) from error
    except LedgerError:
        connection.close()
        raise
    return connection


def _ledger_error(path: Path, error: sqlite3.Error) -> LedgerError:
    if isinstance(error, sqlite3.OperationalError):
        return LedgerError(f"{path}: {error}; is the disk full or another process writing?")
    return LedgerError(f"{path} is damaged: {error}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _Unreadable(f"an entry is not JSON: {error}") from error


def _stored(kind: type[RecordT], content: Any) -> RecordT:
    """A record that was stored as JSON."""
    try:
        return kind.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise _Unreadable(f"a {kind.__name__} is not readable: {first_reason(error)}") from error


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{path} is from a newer version of rlm-flows (schema {version}, this one knows {SCHEMA_VERSION})"
        )
    if version == 0:
        connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
