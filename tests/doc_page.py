"""What a page of the docs tells its reader to do, and whether what came is what it says."""

import re
from collections.abc import Iterator

_BLOCK = re.compile(
    r"(?:^`(?P<name>[\w.]+)`:\n\n)?^(?P<fence>`{3,})(?P<kind>\w+)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S
)


def steps(page: str) -> Iterator[tuple[str, str, str]]:
    """What the page tells its reader to do: (write, name, content) and (run, command, what it prints)."""
    for block in _BLOCK.finditer(page):
        if block["name"]:
            yield "write", block["name"], block["body"]
        elif block["kind"] == "console":
            for part in re.split(r"^\$ ", block["body"], flags=re.M)[1:]:
                command, _, printed = part.partition("\n")
                yield "run", command, printed


def plain(printed: str) -> str:
    """Without what depends on widths: lines of a table, white space."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
    return "\n".join(line for line in lines if line)


def matches(printed: str, page: str) -> bool:
    """Whether this was printed; a line of `…` alone stands for any lines, and `…` within a line for anything."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in plain(page).split("\n")
    )
    return re.fullmatch(pattern, plain(printed) + "\n") is not None
