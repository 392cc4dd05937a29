"""The kinds of sandbox. To add one, write a module with a `Backend` and put it into `BACKENDS`; no caller changes."""

from rlm_core.sandbox.backends import bubblewrap, docker, landlock, seatbelt
from rlm_core.sandbox.backends.base import Backend, Launch
from rlm_core.sandbox.container import Container

BACKENDS = (bubblewrap.BACKEND, landlock.BACKEND, seatbelt.BACKEND)
"""Those that `auto` chooses from, strongest first; no machine has both those of Linux and the one of macOS."""


def every_backend(container: Container) -> tuple[Backend, ...]:
    """All kinds, with those at the end that have to be asked for by name."""
    return (*BACKENDS, docker.backend(container))


__all__ = ["BACKENDS", "Backend", "Launch", "every_backend"]
