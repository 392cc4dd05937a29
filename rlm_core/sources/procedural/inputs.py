"""Random arguments for programs, by the range of each."""

from collections.abc import Callable, Sequence

import numpy as np
from pydantic import JsonValue

from rlm_core.sources.procedural.primitives import Argument

_WORDS = (
    "apple", "banana", "cat", "dog", "elephant", "fish", "green", "house", "idea", "jungle",
    "kite", "lemon", "moon", "night", "orange", "paper", "queen", "river", "stone", "tree",
    "under", "violet", "window", "yellow", "zebra", "bread", "sugar", "garden", "silver", "table",
    "summer", "winter", "book", "glass", "bird",
)  # fmt: skip
_LIMITS = (0, 2, 4, 5, 8, 10)


def draw_input(arguments: Sequence[Argument], rng: np.random.Generator) -> list[JsonValue]:
    """One value for each argument."""
    return [RANGES[argument.range](rng) for argument in arguments]


def _ints(rng: np.random.Generator) -> JsonValue:
    size = int(rng.integers(2, 8))
    low, high = [(-9, 10), (1, 10), (-20, 21), (0, 13)][rng.integers(4)]
    return [int(each) for each in rng.integers(low, high, size)]


def _int(rng: np.random.Generator) -> JsonValue:
    low, high = [(1, 13), (0, 100), (-20, 20), (10, 1000)][rng.integers(4)]
    return int(rng.integers(low, high))


def _word(rng: np.random.Generator) -> str:
    return _WORDS[rng.integers(len(_WORDS))]


def _words(rng: np.random.Generator) -> JsonValue:
    return [_word(rng) for _ in range(rng.integers(2, 6))]


def _text(rng: np.random.Generator) -> JsonValue:
    """Words with single spaces, in lower case, capitalised or in upper case."""
    words = [_word(rng) for _ in range(rng.integers(1, 5))]
    case: Callable[[str], str] = [str.lower, str.title, str.capitalize, str.lower][rng.integers(4)]
    text = case(" ".join(words))
    return text.upper() if rng.random() < 0.1 else text


RANGES: dict[str, Callable[[np.random.Generator], JsonValue]] = {
    "ints": _ints,
    "int": _int,
    "small": lambda rng: int(rng.integers(1, 5)),
    "divisor": lambda rng: int(rng.integers(2, 11)),
    "limit": lambda rng: _LIMITS[rng.integers(len(_LIMITS))],
    "length": lambda rng: int(rng.integers(3, 7)),
    "word": _word,
    "words": _words,
    "text": _text,
}
"""How an argument's values are drawn, by the name of its range."""
