"""The parent's side of a child: one question at a time, each with a deadline, and no trust in the answers."""

import json
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast, get_args

from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.limits import Limits

Said = Literal["loaded", "missing", "returned", "unplain", "raised", "probed"]
Kind = Literal[Said, "timeout", "crashed", "garbage", "not_run"]


@dataclass(frozen=True)
class Answer:
    """What came of one request. Whatever untrusted code does is an answer, never an exception."""

    kind: Kind
    """What the child said; or that it was late, is gone, sent what is no answer to the request, or was not asked."""
    payload: Any = None
    """From a child: unchecked JSON of null, booleans, integers, strings and lists. Otherwise a reason for people."""
    output: Any = ""
    """What the code printed; unchecked, of the same kind."""

    @property
    def lost(self) -> bool:
        """Whether the child is of no further use."""
        return self.kind in ("timeout", "crashed", "garbage")


class Deadline:
    """A point on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds until then, more than 0.

        Raises:
            TimeoutError: it has passed.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Child:
    """A connection to a child."""

    def __init__(self, connection: socket.socket, pid: int, limits: Limits) -> None:
        self.pid = pid
        """Process id as the zygote sees it."""
        self._connection = connection
        self._frame_bytes = limits.frame_mb << 20

    def greeting(self, deadline: Deadline) -> str:
        """The first message, sent before there is untrusted code: "locked", or what is wrong."""
        try:
            return str(_parse(self._receive(deadline)))
        except TimeoutError:
            return "a child did not lock itself down in time"
        except (OSError, ValueError, RecursionError):
            return "a child died while it locked itself down"

    def ask(self, do: str, deadline: Deadline, **fields: Any) -> Answer:
        """Send one request and wait for its answer.

        The child has to repeat a number that it could not know before, so that an answer written in advance, or one too
        many, is not taken for the answer to this.
        """
        nonce = secrets.token_hex(8)
        try:
            self._send(wire.frame({"nonce": nonce, "do": do, **fields}), deadline)
            message = _parse(self._receive(deadline))
        except TimeoutError:
            return Answer("timeout")
        except OSError:
            return Answer("crashed")
        except (ValueError, RecursionError):
            return Answer("garbage")
        match message:
            case [echo, str(kind), payload, output] if echo == nonce and kind in get_args(Said):
                return Answer(cast(Said, kind), payload, output)
        return Answer("garbage")

    def hang_up(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send(self, data: bytes, deadline: Deadline) -> None:
        view = memoryview(data)
        while view:
            self._connection.settimeout(deadline.left_s())
            try:
                view = view[self._connection.send(view) :]
            except TimeoutError:
                continue  # the deadline decides, and may have been put off

    def _receive(self, deadline: Deadline) -> bytes:
        """The body of one frame.

        Raises:
            TimeoutError: the deadline passed.
            OSError: the child is gone.
            ValueError: the frame is too large.
        """
        length = wire.frame_length(self._read(wire.HEADER_BYTES, deadline))
        if length > self._frame_bytes:
            raise ValueError("the frame is too large")
        return self._read(length, deadline)

    def _read(self, length: int, deadline: Deadline) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._connection.settimeout(deadline.left_s())
            try:
                part = self._connection.recv(min(length - len(data), 1 << 16))
            except TimeoutError:
                continue
            if not part:
                raise ConnectionResetError("closed by the child")
            data += part
        return bytes(data)


def _refuse(_text: Any) -> NoReturn:
    raise ValueError("there are no floats and no objects on this wire")


# Objects are refused when they are complete, so that no dictionary is ever made of them.
_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse, object_pairs_hook=_refuse)


def _parse(body: bytes) -> Any:
    return _DECODER.decode(body.decode("ascii"))
