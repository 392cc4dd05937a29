"""Encoded trees (rlm_core/sandbox/inside/wire.py) in the hands of the trusted parent: check, compare, show, convert.

A tree from a child may hold anything that JSON can. It is checked once; after that it is only walked, and nothing is
constructed from it, hashed or evaluated: 20,000 integers chosen to collide keep a set busy for ten seconds.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from rlm_core.sandbox.inside.wire import EXACT_INT, Tree
from rlm_core.sandbox.text import readable

_SEQUENCES = ("l", "t")
"""A JSON array stands for both: problems are JSON, which has no tuples, and a prompt may well ask for one."""
_BRACKETS = {"l": ("[", "]"), "t": ("(", ")"), "s": ("{", "}"), "z": ("frozenset({", "})"), "d": ("{", "}")}
_TEXT_OF = {"i": re.compile("-?0x[0-9a-f]+"), "b": re.compile("(?:[0-9a-f]{2})*")}
_LONGEST_FLOAT = 40
_MANY = 1000
_LARGEST_JSON_INT = 2**1024


class NotJson(Exception):
    """A value that JSON cannot hold; the message says why."""


def is_valid(tree: Tree, nodes: int, depth: int) -> bool:
    """Whether `tree` is an encoding, of at most so many values and so deep."""
    left = nodes
    pending = [(tree, 0)]
    while pending:
        tree, level = pending.pop()
        left -= 1
        if left < 0 or level > depth:
            return False
        match tree:
            case [str(tag), *parts] if tag in _BRACKETS:
                if tag == "d" and len(parts) % 2:
                    return False
                pending += [(part, level + 1) for part in parts]
            case [str(tag), *parts]:
                if not _is_scalar(tag, parts):
                    return False
            case bool() | str() | None:
                pass
            case int():
                if abs(tree) >= EXACT_INT:
                    return False
            case _:
                return False
    return True


def _is_scalar(tag: str, parts: list[Any]) -> bool:
    """Whether `parts` are the texts that a number or bytes consist of under this tag."""
    if not all(isinstance(part, str) for part in parts):
        return False
    if tag in ("f", "c"):
        return len(parts) == (1 if tag == "f" else 2) and all(_is_float(part) for part in parts)
    pattern = _TEXT_OF.get(tag)
    return pattern is not None and len(parts) == 1 and pattern.fullmatch(parts[0]) is not None


def _is_float(text: str) -> bool:
    if len(text) > _LONGEST_FLOAT:
        return False
    try:
        float.fromhex(text)
    except (ValueError, OverflowError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------- comparison


def same(got: Tree, expected: Tree, tolerance: float = 0.0, unordered: bool = False) -> bool:
    """Whether a valid tree from a child stands for the expected value, whose tree we encoded from JSON.

    Types must agree: True is not 1 and 1 is not 1.0. A list and a tuple are the same; NaN equals NaN.

    Args:
        got: a tree that `is_valid`.
        expected: the tree of a JSON value.
        tolerance: relative and absolute tolerance of every float, however deep; 0 compares exactly.
        unordered: whether the outermost list is compared as a multiset.
    """
    if unordered and _is_sequence(expected):
        return _is_sequence(got) and _same_multiset(got[1:], expected[1:], tolerance)
    if not isinstance(expected, list):
        return type(got) is type(expected) and bool(got == expected)
    if not isinstance(got, list):
        return False
    tag = expected[0]
    if tag in _SEQUENCES:
        return got[0] in _SEQUENCES and _same_items(got[1:], expected[1:], tolerance)
    if got[0] != tag:
        return False
    if tag == "f":
        return _close(float.fromhex(got[1]), float.fromhex(expected[1]), tolerance)
    if tag == "d":
        return _same_dict(got[1:], expected[1:], tolerance)
    return got == expected


def _is_sequence(tree: Tree) -> bool:
    return isinstance(tree, list) and tree[0] in _SEQUENCES


def _same_items(got: list[Tree], expected: list[Tree], tolerance: float) -> bool:
    return len(got) == len(expected) and all(same(a, b, tolerance) for a, b in zip(got, expected, strict=True))


def _same_dict(got: list[Tree], expected: list[Tree], tolerance: float) -> bool:
    """Compare two dicts, flat lists of keys and values, by sorting: the keys of a JSON object are strings."""
    if len(got) != len(expected) or not all(isinstance(key, str) for key in got[::2]):
        return False
    ours, theirs = _sorted_pairs(expected), _sorted_pairs(got)
    return all(a[0] == b[0] and same(b[1], a[1], tolerance) for a, b in zip(ours, theirs, strict=True))


def _sorted_pairs(flat: list[Tree]) -> list[tuple[str, Tree]]:
    return sorted(zip(flat[::2], flat[1::2], strict=True), key=lambda pair: pair[0])


def _same_multiset(got: list[Tree], expected: list[Tree], tolerance: float) -> bool:
    if len(got) != len(expected):
        return False
    if sorted(map(_canonical, got)) == sorted(map(_canonical, expected)):
        return True
    if not tolerance or len(expected) > _MANY:
        return False
    # With a tolerance there is no order that puts equals side by side, so each looks for its partner. This takes
    # len(expected)² comparisons, and that length is the problem's, not the candidate's.
    unmatched = list(got)
    for wanted in expected:
        partner = next((index for index, item in enumerate(unmatched) if same(item, wanted, tolerance)), None)
        if partner is None:
            return False
        del unmatched[partner]
    return True


def _canonical(tree: Tree) -> str:
    """A text that two trees share exactly when `same` holds for them without a tolerance."""
    return json.dumps(_normal(tree))


def _normal(tree: Tree) -> Tree:
    if not isinstance(tree, list):
        return tree
    tag, *parts = tree
    if tag == "f":
        return [tag, (float.fromhex(parts[0]) + 0.0).hex()]  # -0.0 + 0.0 is 0.0
    if tag not in _BRACKETS:
        return tree
    items = [_normal(part) for part in parts]
    if tag == "d" and all(isinstance(key, str) for key in items[::2]):
        return [tag, *_sorted_pairs(items)]
    return ["l" if tag in _SEQUENCES else tag, *items]


def _close(got: float, expected: float, tolerance: float) -> bool:
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)


# --------------------------------------------------------------------------------------------- showing and converting


def show(tree: Tree, limit: int = 200) -> str:
    """A valid tree as Python would write the value, cut to `limit` characters."""
    pieces, length = [], 0
    for piece in _pieces(tree):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            break
    return readable("".join(pieces), limit)


def _pieces(tree: Tree) -> Iterator[str]:
    if not isinstance(tree, list):
        yield repr(tree[:1000] if isinstance(tree, str) else tree)
        return
    tag, *parts = tree
    if tag == "i":
        yield str(int(parts[0], 16)) if len(parts[0]) < 100 else f"an integer of some {4 * len(parts[0])} bits"
    elif tag == "f":
        yield repr(float.fromhex(parts[0]))
    elif tag == "c":
        yield repr(complex(*map(float.fromhex, parts)))
    elif tag == "b":
        yield repr(bytes.fromhex(parts[0][:1000]))
    else:
        yield from _collection_pieces(tag, parts)


def _collection_pieces(tag: str, parts: list[Tree]) -> Iterator[str]:
    opening, closing = ("set(", ")") if tag == "s" and not parts else _BRACKETS[tag]
    yield opening
    for index, part in enumerate(parts):
        if index:
            yield ": " if tag == "d" and index % 2 else ", "
        yield from _pieces(part)
    yield "," + closing if tag == "t" and len(parts) == 1 else closing


def to_json(tree: Tree) -> JsonValue:
    """The value of a valid tree, if JSON can hold it; a tuple becomes a list.

    Raises:
        NotJson: it cannot.
    """
    if isinstance(tree, str):
        if not tree.isascii() and any("\ud800" <= char <= "\udfff" for char in tree):
            raise NotJson("is or holds text that is not Unicode")
        return tree
    if not isinstance(tree, list):
        scalar: bool | int | None = tree
        return scalar
    tag, *parts = tree
    if tag in _SEQUENCES:
        return [to_json(part) for part in parts]
    if tag == "d":
        return {_to_key(key): to_json(value) for key, value in zip(parts[::2], parts[1::2], strict=True)}
    if tag == "i":
        return _to_int(parts[0])
    if tag == "f" and math.isfinite(number := float.fromhex(parts[0])):
        return number
    names = {"f": "a float that is not finite", "c": "a complex number", "b": "bytes", "s": "a set", "z": "a frozenset"}
    raise NotJson(f"is or holds {names[tag]}")


def _to_key(tree: Tree) -> str:
    key = to_json(tree)
    if not isinstance(key, str):
        raise NotJson("is or holds a dict with keys other than strings")
    return key


def _to_int(digits: str) -> int:
    """An integer that other programs, and Python's own JSON reader, will still accept."""
    if len(digits) > 2 + _LARGEST_JSON_INT.bit_length() // 4:
        raise NotJson("is or holds an integer of more than 300 digits")
    return int(digits, 16)
