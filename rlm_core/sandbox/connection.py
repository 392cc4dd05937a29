"""The parent's end of a socket into the sandbox: whole frames, each with a deadline."""

import socket
import time
from collections.abc import Sequence

from rlm_core.sandbox.inside import wire


class Outgrown(TimeoutError):
    """A deadline that is over at once, because the child has more memory than it may."""


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


class Connection:
    """Frames over a connected stream socket."""

    def __init__(self, stream: socket.socket, max_frame_bytes: int) -> None:
        self._stream = stream
        self._max_frame_bytes = max_frame_bytes

    def lend(self) -> int:
        """The socket's descriptor, for a process that has no deadlines: they set a mode that both would share."""
        self._stream.setblocking(True)
        return self._stream.fileno()

    def send(self, data: bytes, deadline: Deadline, attach: Sequence[int] = ()) -> None:
        """Send a frame, and descriptors with it.

        Raises:
            TimeoutError: the deadline passed.
            OSError: the other side is gone.
        """
        view = memoryview(data)
        while view:
            self._stream.settimeout(deadline.left_s())
            try:
                if attach:
                    sent = socket.send_fds(self._stream, [view], attach)
                    attach = ()
                else:
                    sent = self._stream.send(view)
            except TimeoutError:
                continue  # the deadline decides, and may have been put off
            view = view[sent:]

    def receive(self, deadline: Deadline) -> bytes:
        """The body of one frame.

        Raises:
            TimeoutError: the deadline passed.
            OSError: the other side is gone.
            ValueError: the frame is too large.
        """
        length = wire.frame_length(self._read(wire.HEADER_BYTES, deadline))
        if length > self._max_frame_bytes:
            raise ValueError("the frame is too large")
        return self._read(length, deadline)

    def close(self) -> None:
        """Hang up. Does nothing the second time."""
        self._stream.close()

    def _read(self, length: int, deadline: Deadline) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._stream.settimeout(deadline.left_s())
            try:
                part = self._stream.recv(min(length - len(data), 1 << 16))
            except TimeoutError:
                continue
            if not part:
                raise ConnectionResetError("closed by the other side")
            data += part
        return bytes(data)
