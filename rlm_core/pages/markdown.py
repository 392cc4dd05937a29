"""Parts of pages in Markdown. Texts that come from a model are shown as they are and cannot become anything else."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

_COLUMN = 56
_LINES = 30


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Bars within a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def columns(of: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a column of each of these, which all have the same rows: it stays narrow however many they are."""
    names = list(next(iter(of.values()), {}))
    return table(["", *of], [[name, *(column[name] for column in of.values())] for name in names])


def fenced(text: str) -> str:
    """A code block that the text cannot end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def code(text: str) -> str:
    """One line within a sentence, cut to a readable length."""
    return f"`{_printable(' '.join(text.split())[: _COLUMN * 2]).replace('`', chr(39))}`"


def wrapped(text: str) -> str:
    """A text in a code block."""
    return fenced("\n".join(_wrapped(text, 2 * _COLUMN)))


def side_by_side(left: str, right: str) -> str:
    """Two texts in two columns. They come from a model: what could not be shown in a line is left out."""
    rows = zip_longest(_wrapped(left, _COLUMN), _wrapped(right, _COLUMN), fillvalue="")
    return "\n".join(f"{a:<{_COLUMN}} | {b}".rstrip() for a, b in rows)


def _wrapped(text: str, width: int) -> list[str]:
    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(_printable(line.expandtabs(4)), width, drop_whitespace=False) or [""]
    ]
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "…"]


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in line)
