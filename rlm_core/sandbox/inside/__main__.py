"""The zygote: a warm, single-threaded interpreter inside the sandbox that forks a locked-down child for every job.

    python -m inside CONTROL

CONTROL is an inherited descriptor's number, or a socket file to connect to where none can be inherited. The parent
sends one message per request over the control socket and gets one back, both as frames of JSON:

    the rules (see the parent's zygote.py), with the owner attached       {"ready": true}
    {"do": "fork"} with the job's socket attached, and for test code      {"pid": …}
        a second one, to the code that it tests
    {"do": "look", "pid": …}                                              {"cpu_s": …, "memory_mb": …}
    {"do": "end", "pid": …}                                               {"status": …, "cpu_s": …, "memory_mb": …}

The job's socket is handed on to the child and closed here: this process never sees code, inputs or answers, and nothing
of one job is left for the next. It ends when the control socket is closed or when the owning process is gone, whichever
comes first (watch.py); the owner is watched, because a fork of it may hold the socket open, and because
PR_SET_PDEATHSIG follows the thread that started us, which may end long before its process.
"""

import fcntl
import gc
import importlib
import os
import signal
import site  # under -S it only defines functions
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from . import lockdown, usage, watch, wire
from .child import ChildLoop

_JOB_DESCRIPTOR, _CANDIDATE_DESCRIPTOR, _LOCKDOWN_DESCRIPTOR = 3, 4, 5
_OUT_OF_THE_WAY = 100
_PATHS_OF_THE_LIBRARY = len(sys.path)
"""Entries of the module search path that were there at the start: this package's directory, the standard library."""
_MAXRSS_PER_MB = 1 << 20 if sys.platform == "darwin" else 1 << 10
_HIGHEST_DESCRIPTOR = 256
"""More than this process ever has open."""
WARM = """
    abc array ast base64 bisect calendar cmath collections collections.abc contextlib copy csv dataclasses datetime
    decimal enum fractions functools hashlib heapq inspect io itertools json math numbers operator os pprint queue
    random re secrets statistics string struct sys textwrap threading time traceback types typing unicodedata uuid
    zlib encodings.ascii encodings.latin_1 encodings.idna
"""
"""Modules that are imported before the first fork, so that no child has to. Others are imported when a child asks."""
_WARM_ON_MACOS = " bz2 lzma pyexpat sqlite3 ssl"
"""Homebrew may keep the libraries of these where no child can read."""


class ZygoteLoop:
    """The fork server's loop."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._rules: dict[str, Any] = {}

    def serve(self) -> NoReturn:
        """Prepare, then answer requests until the owner goes away."""
        self._rules, attached = wire.receive_message(self._control)
        self._watch = watch.owner(self._control, attached, self._rules["owner"])
        packages = _add_own_paths(self._rules) if self._rules["foreign"] else []
        self._lockdown = lockdown.prepare(self._rules)
        self._warm_up()
        sys.path += packages
        self._reply(ready=True)
        while True:
            request, descriptors = self._receive()
            if request["do"] == "fork":
                self._reply(pid=self._fork(*descriptors))
            elif request["do"] == "look":
                self._reply(**_look(request["pid"]))
            else:
                self._reply(**self._end(request["pid"]))

    def _warm_up(self) -> None:
        for name in (WARM + (_WARM_ON_MACOS if sys.platform == "darwin" else "")).split():
            importlib.import_module(name)
        if self._rules["role"] == "tests":
            sys.path += sorted({str(Path(path).parent) for path in self._rules["packages"]})
            importlib.import_module("inside.testing").prepare()
        del sys.path[_PATHS_OF_THE_LIBRARY:]
        sys.path.pop(0)  # where this package is; all of it has been imported
        gc.collect()
        gc.freeze()  # so that no collection in a child writes to, and thereby copies, the pages that all share
        gc.disable()

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next request and the descriptors that came with it; does not return when there will be none."""
        if not self._watch.request_came():
            self._leave()
        try:
            return wire.receive_message(self._control)
        except wire.Closed:
            self._leave()

    def _reply(self, **fields: Any) -> None:
        try:
            wire.send(self._control.fileno(), wire.frame(fields))
        except wire.Closed:
            self._leave()

    def _fork(self, job: int, candidate: int | None = None) -> int:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                self._run_child(job, candidate, parent)
            finally:
                os._exit(0)
        os.close(job)
        if candidate is not None:
            os.close(candidate)
        self._children.add(child)
        return child

    def _run_child(self, job: int, candidate: int | None, parent: int) -> None:
        """In the child: keep the sockets of the job and nothing else, lock down, say so, serve."""
        self._keep_descriptors(job, candidate)
        try:
            self._lockdown.apply(_LOCKDOWN_DESCRIPTOR, parent)
        except Exception as error:
            wire.send(_JOB_DESCRIPTOR, wire.frame(f"cannot lock down: {error}"))
            return
        os.close(_LOCKDOWN_DESCRIPTOR)
        gc.enable()
        wire.send(_JOB_DESCRIPTOR, wire.frame("locked"))
        if candidate is None:
            os.close(_CANDIDATE_DESCRIPTOR)
            ChildLoop(_JOB_DESCRIPTOR, self._rules).serve()
        else:
            sys.modules["inside.testing"].TestChild(_JOB_DESCRIPTOR, _CANDIDATE_DESCRIPTOR, self._rules).serve()

    def _keep_descriptors(self, job: int, candidate: int | None) -> None:
        """Leave open: standard streams on /dev/null, the sockets, what locking down needs."""
        null = os.open("/dev/null", os.O_RDWR)
        needed = self._lockdown.descriptor
        wanted = (null, null, null, job, *(null if each is None else each for each in (candidate, needed)))
        # First all to numbers that none of them has, so that no move overwrites one that is still to come.
        lifted = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for descriptor in wanted]
        for target, source in enumerate(lifted):
            os.dup2(source, target)
        self._control.detach()  # or the object would one day close a descriptor that is no longer its own
        os.closerange(len(wanted), _HIGHEST_DESCRIPTOR)

    def _end(self, child: int) -> dict[str, Any]:
        """Kill a child for good and tell how it ended, with its CPU seconds and largest resident size."""
        self._children.discard(child)
        os.kill(child, signal.SIGKILL)  # it has not been waited for, so its id cannot belong to another
        _, status, used = os.wait4(child, 0)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "cpu_s": used.ru_utime + used.ru_stime,
            "memory_mb": used.ru_maxrss / _MAXRSS_PER_MB,
        }

    def _leave(self) -> NoReturn:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)


def _look(child: int) -> dict[str, float]:
    cpu_s, memory_mb = usage.look(child)
    return {"cpu_s": cpu_s, "memory_mb": memory_mb}


def _add_own_paths(rules: dict[str, Any]) -> list[str]:
    """Let children read this interpreter's libraries and installed packages, which the parent does not know.

    Returns:
        Directories of the packages.
    """
    packages = list(filter(os.path.isdir, site.getsitepackages()))
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    libraries = [*sys.path[1:], *(f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))]
    for kind in ("listable", "readable"):
        rules[kind] += libraries + packages
    return packages


def _renumber(descriptor: int) -> int:
    """Give an inherited descriptor the lowest number; it has come with the one that it has in a large parent."""
    low = os.dup(descriptor)
    os.close(descriptor)
    return low


def _control(where: str) -> socket.socket:
    if where.isdecimal():
        return socket.socket(fileno=_renumber(int(where)))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(where)
    return connection


def main() -> NoReturn:
    ZygoteLoop(_control(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
