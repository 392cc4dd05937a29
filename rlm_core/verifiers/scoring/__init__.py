"""The scorer itself, which runs in a process of its own; its parent's side is scorer.py.

What is here judges texts, never code: by JSON Schemas (schemas.py) and by reasoning-gym's scorers (datasets.py).
"""

from collections.abc import Callable
from typing import TypedDict


class Worth(TypedDict):
    """What a text is worth."""

    score: float
    """0 to 1."""
    reason: str
    """Empty when nothing is wrong."""


ScoreText = Callable[[str], Worth]


class BadVerifier(Exception):
    """A verifier that cannot judge anything; the message says why."""


def scored(reason: str, score: float | None = None) -> Worth:
    """A text's worth; by default 1 when nothing is said against it, else 0."""
    return {"score": float(not reason) if score is None else score, "reason": reason}
