"""A project that was moved or copied finds its files again: the ledger names them by whole paths, which follow it."""

import json
import sqlite3
from pathlib import Path

_OWN_TEXTS = {"problems", "corpus", "exams"}
"""Tables with texts of problems and answers, and without paths."""


def follow(connection: sqlite3.Connection, root: Path) -> None:
    """Let all paths in a ledger that are in the directory where it was last opened lead to `root`, where it is now."""
    row = connection.execute("SELECT value FROM state WHERE key = 'root'").fetchone()
    here = str(root.absolute())
    if row == (here,):
        return
    with connection:
        if row is not None:
            for table, column in _text_columns(connection):
                for old, new in _beginnings(row[0], here):
                    connection.execute(f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?)', (old, new))
                connection.execute(
                    f'UPDATE "{table}" SET "{column}" = :new || substr("{column}", length(:old) + 1)'
                    f" WHERE substr(\"{column}\", 1, length(:old) + 1) = :old || '/'",
                    {"old": row[0], "new": here},
                )
        connection.execute("INSERT OR REPLACE INTO state VALUES ('root', ?)", (here,))


def _text_columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Tables and columns with text that may hold a path."""
    tables = [name for [name] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [
        (table, name)
        for table in tables
        if table not in _OWN_TEXTS
        for _, name, kind, *_ in connection.execute(f'PRAGMA table_info("{table}")')
        if kind == "TEXT"
    ]


def _beginnings(old: str, new: str) -> set[tuple[str, str]]:
    """What paths within a directory begin with in JSON, where some of our records are in ASCII and others are not."""
    quoted = {
        (json.dumps(old, ensure_ascii=flag)[:-1], json.dumps(new, ensure_ascii=flag)[:-1]) for flag in (True, False)
    }
    return {(f"{before}/", f"{after}/") for before, after in quoted}
