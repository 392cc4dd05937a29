"""macOS: each child puts itself under a Seatbelt profile. Written without a Mac at hand; see docs/sandbox.md."""

import os
import sys

from rlm_core.sandbox.backends.base import Backend, Launch
from rlm_core.sandbox.inside import seatbelt
from rlm_core.sandbox.inside.errors import LockdownError
from rlm_core.sandbox.interpreter import INSIDE, Interpreter


def _missing() -> str | None:
    if sys.platform != "darwin":
        return "it needs macOS"
    if os.geteuid() == 0:
        return "a child would stay root, because macOS gives it no other user: run it as an ordinary user"
    try:
        seatbelt.library()
    except LockdownError as error:
        return str(error)
    return None


def _launch(interpreter: Interpreter) -> Launch:
    """The zygote itself is under no profile: Seatbelt does not nest, and it has to fork."""
    return Launch(
        command=(str(interpreter.executable),),
        directory=INSIDE.parent,
        user=None,
        keep_read_access=False,
        count_threads=False,
        listable=tuple(map(str, interpreter.readable)),
        readable=tuple(map(str, interpreter.exposed)),
        packages=tuple(map(str, interpreter.packages)),
        real_pids=True,
        polls_memory=True,
    )


BACKEND = Backend(
    name="seatbelt",
    title="seatbelt",
    missing=_missing,
    launch=_launch,
    advice="Seatbelt does not nest, so a sandbox around this process has to go; what the profile refuses is logged: "
    "log show --last 5m --predicate 'eventMessage CONTAINS \"deny(1)\"'",
)
