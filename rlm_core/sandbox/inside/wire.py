"""Frames on a job's socket, and values as tagged JSON.

A frame is a 4-byte big-endian length and that many bytes of ASCII JSON. A value travels as an *encoded tree*:

    None, bool, str, int below 2**53    itself
    any other int                       ["i", hexadecimal]
    float                               ["f", float.hex()]
    complex                             ["c", real as hex, imaginary as hex]
    bytes                               ["b", hexadecimal]
    list, tuple, set, frozenset         ["l" | "t" | "s" | "z", item, item, …]
    dict                                ["d", key, value, key, value, …]

Every other type is refused, subclasses included: a subclass may lie about what it equals. There are no JSON objects and
no JSON floats in a tree, so the parent can read one without hashing or constructing anything that a candidate chose.
Between test code and the code that it tests, other objects have tags of their own (remote.py).
"""

import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""An encoded value: None, bool, int, str, or a list whose first item is a tag."""

EXACT_INT = 2**53
Foreign: TypeAlias = Callable[[Any, Callable[[Any], Tree]], Tree]
"""Encodes a value of another type, given a function that encodes its parts; raises NotPlain."""

_SCALARS = (type(None), bool, int, float, complex, str, bytes)
SEQUENCE_TAGS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
_LENGTH = struct.Struct(">I")


def _dict(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "l": list, "t": tuple, "s": set, "z": frozenset, "d": _dict,
}  # fmt: skip


class NotPlain(Exception):
    """A value that has no encoding; the message says why, as the end of a sentence that starts with the value."""


class Closed(Exception):
    """The other side is gone."""


# ------------------------------------------------------------------------------------------------------------- values


class Encoder:
    """Encodes values up to a number of nodes, a nesting depth, and a size of the text and numbers in each."""

    def __init__(self, nodes: int, depth: int, size_mb: int, foreign: Foreign | None = None) -> None:
        self._nodes = nodes
        self._depth = depth
        self._size_mb = size_mb
        self._foreign = foreign
        self._nodes_left = 0
        self._bytes_left = 0

    def encode(self, value: Any) -> Tree:
        """The encoded tree of `value`.

        Raises:
            NotPlain: the value, or one inside it, is of another type, too deep or too large.
        """
        self._nodes_left = self._nodes
        self._bytes_left = self._size_mb << 20
        return self._encode(value, 0)

    def _encode(self, value: Any, depth: int) -> Tree:
        self._expect(1)
        self._nodes_left -= 1
        if depth > self._depth:
            raise NotPlain(f"nests deeper than {self._depth}")
        kind = type(value)
        if kind in SEQUENCE_TAGS:
            self._expect(len(value))
            return [SEQUENCE_TAGS[kind], *(self._encode(item, depth + 1) for item in value)]
        if kind is dict:
            self._expect(2 * len(value))
            return ["d", *(self._encode(part, depth + 1) for pair in value.items() for part in pair)]
        if kind in (str, bytes, int):
            self._weigh(value)
        if kind in _SCALARS or self._foreign is None:
            return _encode_scalar(value)
        return self._foreign(value, lambda part: self._encode(part, depth + 1))

    def _expect(self, items: int) -> None:
        """Refuse a collection by its length, before any of it is copied."""
        if items > self._nodes_left:
            raise NotPlain(f"has more than {self._nodes} parts")

    def _weigh(self, value: Any) -> None:
        """Refuse a large scalar by its size, before it is copied."""
        self._bytes_left -= value.bit_length() // 4 if isinstance(value, int) else len(value)
        if self._bytes_left < 0:
            raise NotPlain(f"is larger than {self._size_mb} MB")


def _encode_scalar(value: Any) -> Tree:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -EXACT_INT < value < EXACT_INT else ["i", hex(value)]
    if kind is float:
        return ["f", value.hex()]
    if kind is complex:
        return ["c", value.real.hex(), value.imag.hex()]
    if kind is bytes:
        return ["b", value.hex()]
    raise NotPlain(f"is or holds an object of type {kind.__name__}")


def decode(tree: Tree, foreign: Callable[[str, list[Tree]], Any] | None = None) -> Any:
    """The value of an encoded tree, built anew. Not for the parent to use on an answer: it constructs what it is told.

    Args:
        foreign: makes the value of another tag and its parts.
    """
    if not isinstance(tree, list):
        return tree
    tag, *parts = tree
    if tag == "i":
        return int(parts[0], 16)
    if tag == "f":
        return float.fromhex(parts[0])
    if tag == "c":
        return complex(float.fromhex(parts[0]), float.fromhex(parts[1]))
    if tag == "b":
        return bytes.fromhex(parts[0])
    if foreign is not None and tag not in _COLLECTIONS:
        return foreign(tag, parts)
    values = [decode(part, foreign) for part in parts]
    return _COLLECTIONS[tag](values)


# ------------------------------------------------------------------------------------------------------------- frames


def frame(message: Any) -> bytes:
    """A message as the bytes of one frame."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """The length of the body in bytes, from the four bytes before it."""
    return int(_LENGTH.unpack(header)[0])


HEADER_BYTES = _LENGTH.size


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read one message of a control socket with the descriptors that came with it, at most two.

    The other side is trusted, and waits for a reply before it sends more.

    Raises:
        Closed: the other side is gone.
    """
    try:
        start, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, 2)
        if not start:
            raise Closed
        header = start + _read(connection.fileno(), HEADER_BYTES - len(start))
        return json.loads(_read(connection.fileno(), frame_length(header))), descriptors
    except OSError as error:
        raise Closed from error


def send(descriptor: int, data: bytes) -> None:
    """Write all of `data`, waiting as long as it takes. For the inside; the parent has deadlines.

    Raises:
        Closed: nobody reads any more.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise Closed from error


def receive(descriptor: int, max_bytes: int | None = None) -> Any:
    """Read one message, waiting as long as it takes. For the inside; the parent has deadlines.

    Raises:
        Closed: nobody writes any more.
        ValueError: it is larger than `max_bytes`, or not JSON.
    """
    length = frame_length(_read(descriptor, HEADER_BYTES))
    if max_bytes is not None and length > max_bytes:
        raise ValueError("the frame is too large")
    return json.loads(_read(descriptor, length))


def _read(descriptor: int, length: int) -> bytes:
    parts = []
    while length:
        try:
            part = os.read(descriptor, min(length, 1 << 20))
        except OSError as error:
            raise Closed from error
        if not part:
            raise Closed
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
