"""A child: loads one piece of untrusted code and calls its entry point, as the parent asks over the job's socket.

A request is an object with a `nonce`, the word `do` and what it needs; an answer is a list,
`[nonce, kind, payload, output, blocked]`:

    do      needs                 kind        payload
    load    code, entry_point     loaded      null
                                  missing     null: the code has no such function
    call    arguments (a tree)    returned    the result's encoded tree
                                  unplain     why the result has no encoding
    either                        raised      [builtin classes of its ancestry, own class, message]
    probe                         probed      names of forbidden things that worked

What test code asks for by way of its proxies is in served.py; `entry_point` is null then.

`output` is what the code printed since the last answer, cut to a limit, and `blocked` what it tried that it may not, as
far as Python's audit events show. All of this shares a process with the untrusted code, which can change any of it.
That gains it nothing: whatever it makes this process say is its own answer, and the right answer is not here.
"""

import errno
import io
import os
import random
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

from . import usage, wire
from .remote import EXCEPTIONS
from .served import ServedModule
from .words import words

MODULE = "main"
"""Name that the code is loaded under; not `__main__`, so that a main guard does not run."""
_FILE = f"{MODULE}.py"
"""What the code is said to be from. There is no such file, but Python looks into it for the line of a SyntaxError."""

_BUILTIN_EXCEPTIONS = {kind: name for name, kind in EXCEPTIONS.items()}
_Answer = tuple[str, Any]

_REFUSED_EVENTS = words("""
    socket. subprocess. os.system os.exec os.fork os.posix_spawn os.spawn os.kill os.remove os.rename os.mkdir os.rmdir
    os.chmod os.chown os.chflags os.link os.symlink os.truncate os.utime os.setxattr os.removexattr os.startfile
    shutil. tempfile. pty. urllib. http. ftplib. smtplib. imaplib. poplib. telnetlib. nntplib. webbrowser. sqlite3.
    signal.pthread_kill syslog. fcntl.flock fcntl.lockf
""")
"""Audit events, by their beginnings, of what no sandbox lets through."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MOST_NOTES = 20
_LONGEST_NOTE = 120


class _Bounded(io.RawIOBase):
    """Where output goes: keeps the first bytes of it, up to a limit, and takes the rest without a word."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = len(data)
        self._kept += bytes(data[: self._limit - len(self._kept)])
        return taken

    def take(self) -> str:
        """The output since the last call. The limit is for a child's whole life, so what was taken still counts."""
        text = self._kept.decode("utf-8", "replace")
        self._limit -= len(self._kept)
        self._kept = bytearray()
        return text


class _Watch:
    """Notes, as an audit hook, what the code tries that the sandbox refuses. For people: code can get past it.

    See PEP 578 and the table of audit events in Python's documentation.
    """

    def __init__(self, readable: list[str]) -> None:
        self._readable = tuple(readable)
        self._seen: set[str] = set()
        self._new: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not (event == "open" or event.startswith(_REFUSED_EVENTS)):
            return
        about = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        if event == "open" and (not about or self._may_open(about, arguments[2])):
            return
        if event == "socket.__new__" and arguments[1] == socket.AF_UNIX:
            return  # most likely half of a connected pair, which is allowed
        what = f"{event} {about}".strip()[:_LONGEST_NOTE]
        if what not in self._seen and len(self._seen) < _MOST_NOTES:
            self._seen.add(what)
            self._new.append(what)

    def _may_open(self, path: str, flags: int) -> bool:
        return not flags & _WRITING and path.startswith(self._readable)

    def take(self) -> list[str]:
        """The notes since the last call."""
        new, self._new = self._new, []
        return new


class ChildLoop:
    """The loop of one child, and the state that the untrusted code lives in."""

    def __init__(self, descriptor: int, rules: dict[str, Any]) -> None:
        limits = rules["limits"]
        self._descriptor = descriptor
        self._encoder = wire.Encoder(limits["nodes"], limits["depth"], limits["frame_mb"])
        self._frame_mb = limits["frame_mb"]
        self._text_chars = limits["text_chars"]
        self._output = _Bounded(limits["output_kb"] << 10)
        self._stream = io.TextIOWrapper(io.BufferedWriter(self._output), "utf-8", "backslashreplace")
        self._watch = _Watch([*rules["readable"], *rules["devices"], _FILE])
        self._module = types.ModuleType(MODULE)
        self._served = ServedModule(self._module, limits, self._answer, lambda: wire.receive(self._descriptor))
        self._entry_point = ""

    def serve(self) -> None:
        """Answer requests until the parent goes away."""
        self._prepare_interpreter()
        actions: dict[str, Callable[[dict[str, Any]], _Answer]] = {
            "load": self._load,
            "call": self._call,
            "probe": _probe,
            "get": self._served.answer,
            "names": self._served.answer,
            "operate": self._served.answer,
        }
        while True:
            request = wire.receive(self._descriptor)
            try:
                kind, payload = actions[request["do"]](request)
            except BaseException as error:
                kind, payload = "raised", self._describe(error)
            self._answer(request["nonce"], kind, payload)

    def _prepare_interpreter(self) -> None:
        sys.stdin = io.StringIO("")
        sys.stdout = sys.stderr = self._stream
        sys.argv = [MODULE]
        sys.modules[MODULE] = self._module
        sys.addaudithook(self._watch)
        random.seed(0)  # every child is a fork of one zygote, and a verdict should not depend on chance

    def _load(self, request: dict[str, Any]) -> _Answer:
        code = compile(request["code"], _FILE, "exec", dont_inherit=True)
        exec(code, self._module.__dict__)
        self._entry_point = request["entry_point"]
        found = self._entry_point is None or callable(self._module.__dict__.get(self._entry_point))
        return ("loaded" if found else "missing"), None

    def _call(self, request: dict[str, Any]) -> _Answer:
        arguments = wire.decode(request["arguments"])
        result = self._module.__dict__[self._entry_point](*arguments)
        try:
            return "returned", self._encoder.encode(result)
        except wire.NotPlain as error:
            return "unplain", str(error)[: self._text_chars]
        except BaseException as error:  # memory that runs out here is no exception of the code's own
            return "unplain", f"cannot be encoded: {type(error).__name__}"

    def _describe(self, error: BaseException) -> list[Any]:
        """What is known of an exception. Classes are told by identity: one that is called ValueError need not be it."""
        kind = type(error)
        ancestry = [_BUILTIN_EXCEPTIONS[base] for base in kind.__mro__ if base in _BUILTIN_EXCEPTIONS]
        try:
            message = str(error)[: self._text_chars]
        except BaseException:
            message = ""
        return [ancestry, str(kind.__name__)[: self._text_chars], message]

    def _answer(self, nonce: str, kind: str, payload: Any) -> None:
        data = wire.frame([nonce, kind, payload, self._take_output(), self._watch.take()])
        if len(data) > self._frame_mb << 20:
            data = wire.frame([nonce, "unplain", f"is larger than {self._frame_mb} MB", "", []])
        wire.send(self._descriptor, data)

    def _take_output(self) -> str:
        try:
            self._stream.flush()
        except BaseException:  # the code closed it
            return ""
        return self._output.take()


def _probe(_request: dict[str, Any]) -> _Answer:
    """Try what must not work, and tell what did. Run once when a sandbox is opened, with no untrusted code around."""
    attempts: dict[str, Callable[[], Any]] = {
        "reading a file": lambda: os.close(os.open(__file__, os.O_RDONLY)),
        "writing a file": lambda: os.close(os.open(__file__, os.O_WRONLY)),
        "listing a directory": lambda: os.scandir(__file__.rpartition("/")[0]).close(),
        "opening a socket": _use_a_socket,
        "starting a process": _fork,
        "starting a program": lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}),
        "signalling a process": lambda: os.kill(os.getppid(), 0),
    }
    if sys.platform == "darwin":
        attempts["reading another process's environment"] = lambda: usage.arguments_of(os.getppid())
    return "probed", [name for name, attempt in attempts.items() if not _refused(attempt)]


def _refused(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES, errno.EROFS)
    return False


def _use_a_socket() -> None:
    """Linux refuses to make one; macOS may make it, and refuses to give it an address. Nothing is sent."""
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.connect(("127.0.0.1", 9))
        except PermissionError:
            datagrams.bind(("127.0.0.1", 0))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
