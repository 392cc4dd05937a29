"""Long lists of short names, written as text."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())
