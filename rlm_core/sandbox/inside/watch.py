"""Noticing that another process is gone, so that nothing of a sandbox outlives its owner.

On Linux the owner comes as a pidfd, because its process id may mean nothing in the zygote's namespace, and a child has
the kernel kill it together with the zygote (kernel.die_with_parent). macOS has neither: there the kernel reports the
exit of a process to a kqueue, which a child waits at in a thread of its own.
"""

import _thread
import os
import select as typed_select
import socket
import sys
from typing import Any, NoReturn

from .errors import LockdownError

select: Any = typed_select
"""Its contents depend on the platform, and both are read by the type checker."""

_ORPHANED = 1
"""Exit status of a child whose zygote went first."""


class Pidfd:
    """Waits for a request or for the end of the owner, on Linux."""

    def __init__(self, control: socket.socket, owner: int) -> None:
        """Begin to watch.

        Args:
            control: the socket that requests come from.
            owner: a pidfd.
        """
        self._owner = owner
        self._poller = select.poll()
        self._poller.register(control, select.POLLIN)
        self._poller.register(owner, select.POLLIN)

    def request_came(self) -> bool:
        """Wait for what comes first. False: the owner is gone."""
        return self._owner not in {descriptor for descriptor, _ in self._poller.poll()}


class Kqueue:
    """Waits for a request or for the end of the owner, on macOS."""

    def __init__(self, control: socket.socket, owner: int) -> None:
        """Begin to watch.

        Args:
            control: the socket that requests come from, or whose end is news too.
            owner: process id of the owner.

        Raises:
            ProcessLookupError: it is gone already.
        """
        self._queue = select.kqueue()
        request = select.kevent(control.fileno(), select.KQ_FILTER_READ, select.KQ_EV_ADD)
        self._queue.control([request, _exit_of(owner)], 0)

    def request_came(self) -> bool:
        """Wait for what comes first. False: the owner is gone."""
        return all(event.filter != select.KQ_FILTER_PROC for event in self._queue.control(None, 2, None))


def owner(control: socket.socket, attached: list[int], process: int) -> Pidfd | Kqueue:
    """The watch of a zygote over its owner.

    Args:
        control: the socket that requests come from.
        attached: descriptors that came with the rules: on Linux a pidfd of the owner.
        process: process id of the owner, which counts on macOS.
    """
    return Kqueue(control, process) if sys.platform == "darwin" else Pidfd(control, attached[0])


class Exit:
    """Ends this process when another one has ended. For macOS."""

    def __init__(self, process: int) -> None:
        """Begin to watch.

        Raises:
            LockdownError: there is no such process.
        """
        self._queue = select.kqueue()
        try:
            self._queue.control([_exit_of(process)], 0)
        except OSError as error:
            raise LockdownError(f"cannot watch the parent process: {error.strerror}") from error

    def end_this_process_too(self) -> None:
        """Do so from a thread that no list of threads shows. Code in this process can end it, and gains little by that:
        the parent kills the processes that it knows.

        Raises:
            LockdownError: there is no thread to be had.
        """
        try:
            _thread.start_new_thread(self._wait, ())
        except RuntimeError as error:
            raise LockdownError(str(error)) from error

    def _wait(self) -> NoReturn:
        try:
            self._queue.control(None, 1, None)
        finally:
            os._exit(_ORPHANED)  # also when the queue was closed under it


def _exit_of(process: int) -> Any:
    return select.kevent(process, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
