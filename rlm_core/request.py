"""The words in which a problem asks for a function: how they are written, and read again."""

import re
from dataclasses import dataclass

_FORM = re.compile(r"Write a Python function `(?P<signature>[^`]*)` that (?P<what>.*)", re.DOTALL)


@dataclass(frozen=True)
class AskedFunction:
    """What a request in these words is about."""

    signature: str
    """`name(a, b)`"""
    what: str
    """What the function does, as in "returns the sum of a and b."."""


def request(signature: str, what: str) -> str:
    """The prompt that asks for a function."""
    return f"Write a Python function `{signature}` that {what}"


def parsed(prompt: str) -> AskedFunction | None:
    """What a prompt asks for, or None when it does so in words of its own."""
    found = _FORM.fullmatch(prompt)
    return AskedFunction(found["signature"], found["what"]) if found else None
