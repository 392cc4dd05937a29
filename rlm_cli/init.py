"""`rlm init`: make a project, from examples or from another tool's."""

from collections import Counter
from pathlib import Path

from rich.table import Table

from rlm_cli.terminal import plain_console
from rlm_core.mlxsmith.convert import REPORT_NAME, Fate, migrate
from rlm_core.starter.new_project import CONFIG_NAME, make_project, starter_files

_console = plain_console()


def init_project(directory: Path, source: Path | None) -> None:
    """Write a project's files and say which, and what became of another tool's settings.

    Raises:
        UsageError: a file of it is there already, or `source` cannot be read.
        StageFailed: the directory cannot be written.
    """
    migration = migrate(source) if source else None
    files = migration.files if migration else starter_files()
    make_project(directory, files)
    if migration:
        _print_fates(migration.fates)
    _console.print(f"made {', '.join(sorted(files))} in {directory.absolute()}", soft_wrap=True)
    first = "" if directory == Path() else f"cd {directory} && "
    _console.print(
        f"{CONFIG_NAME} has all settings with their meaning. The first iteration: {first}rlm run", soft_wrap=True
    )


def _print_fates(fates: list[Fate]) -> None:
    """What the file says, key by key; of the keys that it leaves alone how many."""
    rows = Table.grid(padding=(0, 2))
    for fate in fates:
        if fate.given:
            rows.add_row(fate.key, fate.word, fate.text)
    _console.print(rows)
    words = Counter(fate.word for fate in fates if not fate.given)
    rest = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    _console.print(f"of the keys that it leaves at their defaults: {rest}; {REPORT_NAME} has them all")
