"""What all commands print by: text as it is. A path or a message may look like rich's markup, which would take part of
it away or refuse it."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text


def plain_console(stderr: bool = False) -> Console:
    """A console that prints text as it is; `rich.text.Text` may have styles."""
    return Console(stderr=stderr, highlight=False, markup=False)


def print_rows(console: Console, rows: Mapping[str, str | Text]) -> None:
    """Names and what is to be told of them, in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)
