"""The project's state: one SQLite file, changed by one transaction per gate. The only module that asks its tables."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import ValidationError

from rlm_core.errors import LedgerError, UsageError, one_line
from rlm_core.files import first_reason
from rlm_core.problems import Problem
from rlm_core.records import AdapterRef, ExamReport, GateDecision, Lineage, PastScores, PolicyRef, Record
from rlm_core.state.corpus import CorpusAnswer, most_useful
from rlm_core.state.ledger_file import WAY_OUT, check_not_lost, connect, ledger_error
from rlm_core.usefulness import TriedProblem, Try, usefulness

RecordT = TypeVar("RecordT", bound=Record)
P = ParamSpec("P")
T = TypeVar("T")


class _Unreadable(Exception):
    """Something in the ledger is not what was stored."""


def _of_entries(read: Callable[P, T]) -> Callable[P, T]:
    """A reading that reckons with the ledger's entries: what is wrong then is wrong with them."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise _Unreadable(f"an entry is not readable: {one_line(first_reason(error))}") from error

    return reading


class ProblemOutcome(Record):
    """How the rollouts of one of an iteration's problems did, and one answer that passed, for the corpus."""

    problem: Problem
    rollouts: int
    passed: int
    passed_rollout_id: str | None = None
    passed_text: str | None = None


PointerName = Literal["accepted", "trainer", "inference"]
"""Which adapter exams and reports call the incumbent; which one answers and is trained; which one is served."""


class Move(Record):
    """A pointer came to point at an adapter."""

    name: PointerName
    iteration: int
    """The last that had ended, or was ending, then."""
    time: str
    cause: Literal["begun", "accepted", "probation", "rejected", "rollback"]
    adapter: AdapterRef | None
    """None: the base model without one."""
    scores: dict[str, Any] | None = None
    """accepted: best and moving average of the scores on a suite."""


class Base(Record):
    """The base model that a project is about."""

    name: str
    fingerprint: str

    @classmethod
    def of(cls, policy: PolicyRef) -> "Base":
        return cls(name=policy.base, fingerprint=policy.fingerprint)


class FinishedIteration(Record):
    """An iteration that a gate decided, as the ledger remembers it."""

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
        return int(last) + 1

    def incumbent(self) -> AdapterRef | None:
        """The adapter that was last accepted, or None for the base model."""
        move = self.pointer("accepted")
        return move.adapter if move else None

    def lineage(self) -> Lineage:
        """What the next candidate is trained from and compared with, and how many before it were not accepted."""
        trainer = [move for move in self.moves() if move.name == "trainer"]
        tried = [entry.decision for entry in self.history() if entry.decision.candidate]
        return Lineage(
            incumbent=self.incumbent(),
            learner=trainer[-1].adapter if trainer else None,
            waited=next((n for n, move in enumerate(reversed(trainer)) if move.cause != "probation"), 0),
            tries=sum(not decision.accepted for decision in tried),
        )

    def pointer(self, name: PointerName) -> Move | None:
        """Where a pointer stands; None in a ledger that was not begun."""
        return next((move for move in reversed(self.moves()) if move.name == name), None)

    def moves(self) -> list[Move]:
        """All moves of the pointers, oldest first."""
        rows = self._connection.execute(
            "SELECT name, iteration, time, cause, adapter, scores FROM pointers ORDER BY version"
        )
        return [
            _stored(
                Move,
                {
                    "name": name,
                    "iteration": iteration,
                    "time": time,
                    "cause": cause,
                    "adapter": _json(adapter),
                    "scores": _json(scores),
                },
            )
            for name, iteration, time, cause, adapter, scores in rows
        ]

    def base(self) -> Base | None:
        """The base model that the project was begun with."""
        value = self._state("base")
        return _stored(Base, value) if value else None

    def check_base(self, base: Base) -> None:
        """Refuse a config that names another base model; a project that was not begun takes any.

        Raises:
            UsageError: the project was begun with another base.
        """
        known = self.base()
        if known is not None and known.fingerprint != base.fingerprint:
            raise UsageError(
                f"this project was begun with the base model {known.name!r}, the config names {base.name!r}; "
                "use another project directory for it"
            )

    def adapters_in_use(self) -> set[AdapterRef]:
        """Those that can still be needed: what a rollback leads to, what is trained and what is served."""
        current = [self.pointer("trainer"), self.pointer("inference")]
        ways_back = [move for move in self.moves() if move.name == "accepted"]
        return {move.adapter for move in [*current, *ways_back] if move and move.adapter}

    def made_in(self, adapter: AdapterRef) -> int:
        """The iteration whose candidate an adapter was; 0 of one that the project was begun with."""
        row = self._connection.execute("SELECT iteration FROM adapters WHERE sha256 = ?", (adapter.sha256,)).fetchone()
        return row[0] if row else 0

    def past_scores(self, suite_digest: str | None = None) -> PastScores:
        """Best and moving average of the accepted benchmark scores; those on another suite do not count."""
        move = self.pointer("accepted")
        value = (move.scores if move else None) or {}
        if suite_digest is not None and value.get("suite") != suite_digest:
            return PastScores()
        return PastScores(best=value.get("best"), ema=value.get("ema"))

    def exam(self, key: str) -> ExamReport | None:
        """An earlier report with this key."""
        row = self._connection.execute("SELECT report FROM exams WHERE key = ?", (key,)).fetchone()
        return _stored(ExamReport, _json(row[0])) if row else None

    def history(self) -> list[FinishedIteration]:
        """All finished iterations, oldest first."""
        rows = self._connection.execute("SELECT number, ended, decision, summary FROM iterations ORDER BY number")
        return [
            _stored(
                FinishedIteration,
                {"number": number, "ended": ended, "decision": _json(decision), "summary": _json(summary)},
            )
            for number, ended, decision, summary in rows
        ]

    @_of_entries
    def tried_problems(self, before: int) -> list[TriedProblem]:
        """What was asked in iterations before this one, each problem once, in the order in which they came."""
        rows = self._connection.execute(
            "SELECT id, iteration, rollouts, passed FROM problems WHERE iteration < ? ORDER BY iteration, rowid",
            (before,),
        )
        tries: dict[str, list[Try]] = {}
        for name, iteration, rollouts, passed in rows:
            tries.setdefault(name, []).append(Try(iteration=iteration, rollouts=rollouts, passed=passed))
        newest = self._connection.execute(
            "SELECT id, content FROM problems WHERE rowid IN (SELECT MAX(rowid) FROM problems "
            "WHERE iteration < ? GROUP BY id)",
            (before,),
        )
        contents = {name: _stored(Problem, _json(content)) for name, content in newest}
        return [TriedProblem(problem=contents[name], tries=tuple(each)) for name, each in tries.items()]

    @_of_entries
    def corpus(self, before: int) -> list[CorpusAnswer]:
        """The answers from iterations before this one, the most useful first, with what was known of them then."""
        rows = self._connection.execute(
            """
            SELECT problems.id, problems.content, rollout_id, corpus.iteration, text, passed, rollouts
            FROM corpus JOIN problems ON problems.id = problem_id AND problems.iteration = (
                SELECT MAX(iteration) FROM problems WHERE id = problem_id AND rollouts > 0 AND iteration < :before)
            WHERE corpus.iteration < :before
            """,
            {"before": before},
        ).fetchall()
        tries = self._tries_of_the_corpus(before)
        return most_useful(
            CorpusAnswer(
                problem=_stored(Problem, _json(content)),
                rollout_id=rollout_id,
                iteration=iteration,
                text=text,
                pass_rate=passed / rollouts,
                usefulness=usefulness(tries[problem_id], before),
            )
            for problem_id, content, rollout_id, iteration, text, passed, rollouts in rows
        )

    def _tries_of_the_corpus(self, before: int) -> dict[str, list[Try]]:
        """How each problem with an answer in the corpus went, oldest first."""
        rows = self._connection.execute(
            """
            SELECT id, iteration, rollouts, passed FROM problems
            WHERE iteration < ? AND id IN (SELECT problem_id FROM corpus) ORDER BY iteration
            """,
            (before,),
        )
        tries: dict[str, list[Try]] = {}
        for problem_id, iteration, rollouts, passed in rows:
            tries.setdefault(problem_id, []).append(Try(iteration=iteration, rollouts=rollouts, passed=passed))
        return tries

    def corpus_size(self) -> int:
        """Answers in the corpus."""
        [count] = self._connection.execute("SELECT COUNT(*) FROM corpus").fetchone()
        return int(count)

    def _state(self, key: str) -> Any:
        row = self._connection.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return _json(row[0]) if row else None

    # ------------------------------------------------------------------------------------------------------- writing

    def begin(self, base: Base, adapter: AdapterRef | None) -> None:
        """Bind a new project to its base model and first adapter; check an old one against its own.

        Raises:
            UsageError: the project was begun with another base.
        """
        self.check_base(base)
        if self.base() is None:
            with self._connection:
                self._set("base", base.model_dump())
                for name in ("accepted", "trainer", "inference"):
                    self._point(name, 0, "begun", adapter)

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
        infer_staleness: int = 0,
    ) -> None:
        """Record an iteration's end: decision, pointers, best scores, problems and corpus, all or nothing.

        Committing the same iteration again changes nothing.

        Args:
            corpus_size: answers that are kept at most; None keeps all.
            infer_staleness: iterations by which the pointer `inference` follows later than `accepted`.
        """
        with self._connection:
            done = self._connection.execute(
                "INSERT OR IGNORE INTO iterations VALUES (?, ?, ?, ?, ?)",
                (decision.iteration, _now(), decision.outcome, decision.model_dump_json(), json.dumps(summary)),
            )
            if done.rowcount == 0:
                return
            self._add_outcomes(decision.iteration, outcomes)
            self._bound_corpus(decision.iteration, corpus_size)
            if decision.candidate is not None:
                self._add_candidate(decision, decision.candidate, ema_weight)
            if decision.rejected and decision.learner != decision.incumbent:
                self._point("trainer", decision.iteration, "rejected", decision.incumbent)
            self._follow(decision.iteration, infer_staleness)

    def _add_candidate(self, decision: GateDecision, candidate: AdapterRef, ema_weight: float) -> None:
        source = decision.learner.sha256 if decision.learner else None
        self._connection.execute(
            "INSERT OR REPLACE INTO adapters VALUES (?, ?, ?, ?, ?)",
            (candidate.sha256, candidate.path, decision.iteration, source, decision.outcome),
        )
        if decision.accepted:
            scores = self._scores_with(decision, ema_weight)
            self._point("accepted", decision.iteration, "accepted", candidate, scores)
        if not decision.rejected:
            self._point("trainer", decision.iteration, decision.outcome, candidate)

    def _scores_with(self, decision: GateDecision, ema_weight: float) -> dict[str, Any]:
        assert decision.benchmark is not None
        score, suite = decision.benchmark.candidate, decision.benchmark.suite_digest
        past = self.past_scores(suite)
        ema = score if past.ema is None else ema_weight * score + (1 - ema_weight) * past.ema
        return {"suite": suite, "best": max(score, past.best or 0.0), "ema": ema}

    def _follow(self, iteration: int, staleness: int) -> None:
        """Let `inference` point where `accepted` pointed so many iterations ago, or where it was since put by hand."""
        due = [
            move
            for move in self.moves()
            if move.name == "accepted" and (move.cause != "accepted" or move.iteration <= iteration - staleness)
        ]
        served = self.pointer("inference")
        if due and served and due[-1].adapter != served.adapter:
            self._point("inference", iteration, "accepted", due[-1].adapter)

    def way_back(self, iteration: int) -> Move:
        """The move by which this iteration's candidate was accepted; of 0, what the project was begun with.

        Raises:
            UsageError: nothing was accepted in this iteration; the message says in which.
        """
        moves = [move for move in self.moves() if move.name == "accepted" and move.cause in ("begun", "accepted")]
        found = {move.iteration: move for move in moves}
        if iteration not in found:
            known = ", ".join(map(str, found)) or "none"
            raise UsageError(f"iteration {iteration} did not accept anything; there is a way back to {known}")
        return found[iteration]

    def roll_back(self, iteration: int) -> None:
        """Point all pointers at what this iteration's gate accepted; 0 is what the project was begun with.

        The scores that the rules `strict` and `ema` go by are those of that time. Nothing is forgotten.

        Raises:
            UsageError: nothing was accepted in this iteration; the message says in which.
        """
        target = self.way_back(iteration)
        with self._connection:
            for name in ("accepted", "trainer", "inference"):
                scores = target.scores if name == "accepted" else None
                self._point(name, self.next_iteration() - 1, "rollback", target.adapter, scores)

    def _add_outcomes(self, iteration: int, outcomes: Sequence[ProblemOutcome]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?, ?)",
            [(o.problem.id, iteration, o.problem.model_dump_json(), o.rollouts, o.passed) for o in outcomes],
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO corpus VALUES (?, ?, ?, ?)",
            [(o.passed_rollout_id, iteration, o.problem.id, o.passed_text) for o in outcomes if o.passed_rollout_id],
        )

    def _bound_corpus(self, iteration: int, size: int | None) -> None:
        """Keep so many of the answers up to this iteration, the most useful; see `corpus.most_useful`."""
        kept = {answer.rollout_id for answer in self.corpus(before=iteration + 1)[:size]}
        there = self._connection.execute("SELECT rollout_id FROM corpus").fetchall()
        gone = [row for row in there if row[0] not in kept]
        self._connection.executemany("DELETE FROM corpus WHERE rollout_id = ?", gone)

    def _point(
        self,
        name: str,
        iteration: int,
        cause: str,
        adapter: AdapterRef | None,
        scores: dict[str, Any] | None = None,
    ) -> None:
        self._connection.execute(
            "INSERT INTO pointers (name, iteration, time, cause, adapter, scores) VALUES (?, ?, ?, ?, ?, ?)",
            (name, iteration, _now(), cause, json.dumps(adapter and adapter.model_dump()), json.dumps(scores)),
        )

    def _set(self, key: str, value: Any) -> None:
        self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, json.dumps(value)))


@contextmanager
def open_ledger(path: Path, create: bool = True, anew: bool = False) -> Iterator[Ledger]:
    """Open a project's ledger for the time of the block.

    Args:
        anew: it is to be filled from the backup and the runs beside it, which otherwise show that one was lost.

    Raises:
        LedgerError: it is not there (and not to be created), lost, locked, damaged, or from a newer version.
    """
    if not anew:
        check_not_lost(path)
    if not create and not path.is_file():
        raise LedgerError(f"{path} does not exist: no iteration was run in this project yet")
    connection = connect(path)
    try:
        yield Ledger(connection)
    except sqlite3.Error as error:
        raise ledger_error(path, error) from error
    except _Unreadable as error:
        raise LedgerError(f"{path} is damaged: {error}; {WAY_OUT}") from error
    finally:
        connection.close()


def is_begun(path: Path) -> bool:
    """Whether the project with this ledger was begun. An exam may make a ledger before any iteration begins it.

    Raises:
        LedgerError: the ledger is there but cannot be used.
    """
    if not path.is_file():
        return False
    with open_ledger(path, create=False) as ledger:
        return ledger.base() is not None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise _Unreadable(f"an entry is not JSON: {error}") from error


def _stored(kind: type[RecordT], content: Any) -> RecordT:
    """A record that was stored as JSON."""
    try:
        return kind.model_validate_json(json.dumps(content))
    except (TypeError, ValidationError) as error:
        raise _Unreadable(f"a {kind.__name__} is not readable: {first_reason(error)}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
