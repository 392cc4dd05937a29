"""The parent's side of a child: one question at a time, each with a deadline, and no trust in the replies."""

import json
import secrets
import socket
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast, get_args

from rlm_core.sandbox.connection import Connection, Deadline, Outgrown
from rlm_core.sandbox.inside import wire
from rlm_core.sandbox.limits import Limits

Said = Literal["loaded", "missing", "returned", "unplain", "raised", "probed"]
Kind = Literal[Said, "timeout", "crashed", "garbage", "not_run"]


@dataclass(frozen=True)
class Reply:
    """What came of one request. Whatever untrusted code does is a reply, never an exception."""

    kind: Kind
    """What the child said; or that it was late, is gone, sent what is no reply to the request, or was not asked."""
    payload: Any = None
    """From a child: unchecked JSON of null, booleans, integers, strings and lists. Otherwise a reason for people, or
    None."""
    output: Any = ""
    """What the code printed; unchecked, of the same kind."""
    blocked: Any = ()
    """What the code tried to do that it may not; unchecked, of the same kind."""

    @property
    def lost(self) -> bool:
        """Whether the child is of no further use."""
        return self.kind in ("timeout", "crashed", "garbage")


class Child:
    """A connection to a child."""

    def __init__(self, stream: socket.socket, pid: int, limits: Limits) -> None:
        self.pid = pid
        """Process id as the zygote sees it."""
        self.connection = Connection(stream, limits.frame_mb << 20)

    def greeting(self, deadline: Deadline) -> str:
        """The first message, sent before there is untrusted code: "locked", or what is wrong."""
        try:
            return str(parse(self.connection.receive(deadline)))
        except TimeoutError:
            return "a child did not lock itself down in time"
        except (OSError, ValueError, RecursionError):
            return "a child died while it locked itself down"

    def ask(self, do: str, deadline: Deadline, **fields: Any) -> Reply:
        """Send one request and wait for its reply.

        The child has to repeat a number that it could not know before, so that a reply written in advance, or one too
        many, is not taken for the reply to this.
        """
        nonce = secrets.token_hex(8)
        try:
            self.connection.send(wire.frame({"nonce": nonce, "do": do, **fields}), deadline)
            message = parse(self.connection.receive(deadline))
        except Outgrown as outgrown:
            return Reply("crashed", str(outgrown))
        except TimeoutError:
            return Reply("timeout")
        except OSError:
            return Reply("crashed")
        except (ValueError, RecursionError):
            return Reply("garbage")
        match message:
            case [echo, str(kind), payload, output, blocked] if echo == nonce and kind in get_args(Said):
                return Reply(cast(Said, kind), payload, output, blocked)
        return Reply("garbage")


def _refuse(_text: Any) -> NoReturn:
    raise ValueError("there are no floats and no objects on this wire")


# Objects are refused when they are complete, so that no dictionary is ever made of them.
_DECODER = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse, object_pairs_hook=_refuse)


def parse(body: bytes) -> Any:
    """The message in a frame from a child: null, booleans, integers, strings and lists.

    Raises:
        ValueError, RecursionError: it is none.
    """
    return _DECODER.decode(body.decode("ascii"))
