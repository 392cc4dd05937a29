"""The ledger's file: opened, brought to this version's schema, and what SQLite's errors say about it."""

import sqlite3
from pathlib import Path

from rlm_core.errors import LedgerError
from rlm_core.state.migrations import SCHEMA_VERSION, migrate
from rlm_core.state.moved import follow
from rlm_core.state.project import Project

WAY_OUT = "`rlm doctor --rebuild-ledger` makes it anew from its backup and the run directories"
"""What a person can do about a damaged ledger."""

_OF_THE_MOMENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}
"""Errors that say nothing about what is in the ledger."""


def check_not_lost(path: Path) -> None:
    """Notice that a ledger is gone.

    Raises:
        LedgerError: there is none, but the project shows that there was one.
    """
    if _is_nothing(path) and (trace := _trace_of_a_ledger(path.parent)):
        raise LedgerError(f"{path} is missing or empty, but {trace} shows that iterations have ended; {WAY_OUT}")


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, make it if need be, and bring it to this version's schema.

    Raises:
        LedgerError: it is locked, damaged or from a newer version, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=30)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    try:
        _migrate(connection, path)
        follow(connection, path.parent)
    except sqlite3.Error as error:
        connection.close()
        raise ledger_error(path, error) from error
    except TypeError as error:
        connection.close()
        raise LedgerError(f"{path} is damaged: an entry is not a text: {error}; {WAY_OUT}") from error
    except LedgerError:
        connection.close()
        raise
    return connection


def ledger_error(path: Path, error: sqlite3.Error) -> LedgerError:
    """What an error of SQLite says about the file, and the way out if it is damaged."""
    # The low byte is the kind of error. An error of the module itself has no code.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_MOMENT:
        return LedgerError(f"{path}: {error}; is the disk full or another process writing?")
    return LedgerError(f"{path} is damaged: {error}; {WAY_OUT}")


def _is_nothing(path: Path) -> bool:
    """Whether there is no ledger, or an empty file, which SQLite takes for a new one."""
    try:
        return not path.exists() or (path.is_file() and path.stat().st_size == 0)
    except OSError:  # SQLite says what is the matter
        return False


def _trace_of_a_ledger(root: Path) -> Path | None:
    """A file of the project that is there only when its ledger was."""
    project = Project(root)
    traces = (project.ledger_backup, *(run.decision for run in project.all_runs()))
    return next((path for path in traces if path.exists()), None)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{path} is from a newer version of rlm-flows (schema {version}, this one knows {SCHEMA_VERSION})"
        )
    try:
        migrate(connection, version)
    except (LookupError, TypeError, ValueError) as error:
        raise LedgerError(
            f"{path} is damaged: an entry of schema {version} is not readable: {error!r}; {WAY_OUT}"
        ) from error
