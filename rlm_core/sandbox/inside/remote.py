"""Objects that cross between test code and the code that it tests: what both ends share.

Values of the exact builtin types go by copy (wire.py), and so do those of a few classes of the standard library, as
`["p", class, tree]`. Everything else stays where it is and is spoken of by a number:

    ["h", number]                   an object of the code under test; the tests hold a proxy for it
    ["g", number, name, doc]        a function or an iterator of the tests; the code under test holds a proxy for it
                                    and gives back ["g", number]
    ["x", [name, number, bases]]    an exception class and, in the same way, its bases; builtin ones have no number
"""

import builtins
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .wire import Tree
from .words import words

EXCEPTIONS: dict[str, type[BaseException]] = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
"""Every builtin exception by name."""

_COPIED: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "Counter": (Counter, dict, Counter),
    "Decimal": (Decimal, str, Decimal),
    "Fraction": (Fraction, str, Fraction),
    "OrderedDict": (OrderedDict, dict, OrderedDict),
    "date": (date, date.isoformat, date.fromisoformat),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "defaultdict": (defaultdict, dict, lambda items: defaultdict(None, items)),
    "deque": (deque, list, deque),
    "range": (range, lambda span: [span.start, span.stop, span.step], lambda bounds: range(*bounds)),
    "slice": (slice, lambda cut: [cut.start, cut.stop, cut.step], lambda bounds: slice(*bounds)),
    "timedelta": (
        timedelta,
        lambda time: [time.days, time.seconds, time.microseconds],
        lambda parts: timedelta(*parts),
    ),
}
"""Class, to plain value, and back."""
_NAMES = {kind: name for name, (kind, _, _) in _COPIED.items()}
_TYPES: dict[str, type] = {
    name: getattr(builtins, name)
    for name in words("bool bytearray bytes complex dict float frozenset int list object set str tuple type")
}
"""Builtin classes, which are the same on both sides."""


def encode_copied(value: Any, encode: Callable[[Any], Tree]) -> Tree | None:
    """The tree of a value that goes by copy, or None when it is of no such class."""
    if type(value) is type and _TYPES.get(value.__name__) is value:
        return ["p", "type", value.__name__]
    name = _NAMES.get(type(value))
    return None if name is None else ["p", name, encode(_COPIED[name][1](value))]


def decode_copied(name: str, value: Any) -> Any:
    """The value that was made plain by `encode_copied`."""
    return _TYPES[value] if name == "type" else _COPIED[name][2](value)


class Table:
    """Objects by number; the same object always has the same, and is kept alive."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, item: Any) -> int:
        """The object's number, a new one if it has none yet."""
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self._objects)
            self._objects.append(item)
        return self._numbers[id(item)]

    def __getitem__(self, number: int) -> Any:
        return self._objects[number]


def ancestry(kind: type, number: Callable[[Any], int | None]) -> list[Tree]:
    """An exception class as its name, its number, and the same of its bases up to builtin ones."""
    if EXCEPTIONS.get(kind.__name__) is kind:
        return [kind.__name__, None, []]
    bases = [ancestry(base, number) for base in kind.__bases__ if issubclass(base, BaseException)]
    return [str(kind.__name__), number(kind), bases]
