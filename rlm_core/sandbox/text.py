"""Text from the sandbox, made fit for people and for files."""

GARBAGE = "what its process sent is not an answer to what was asked"


def readable(text: str, limit: int = 200) -> str:
    """Text from a child for people: one line of printable characters that UTF-8 can hold, cut to `limit`."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


def storable(text: str) -> str:
    """Text from a child that UTF-8 can hold, otherwise unchanged."""
    return text.encode("utf-8", "backslashreplace").decode()
