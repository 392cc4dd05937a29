"""The kinds of sandbox. To add one, write a module with a `Backend` and put it into `BACKENDS`; no caller changes."""

from rlm_core.sandbox.backends import bubblewrap, landlock, seatbelt
from rlm_core.sandbox.backends.base import Backend, Launch

BACKENDS = (bubblewrap.BACKEND, landlock.BACKEND, seatbelt.BACKEND)
"""Strongest first; no machine has both those of Linux and the one of macOS."""

__all__ = ["BACKENDS", "Backend", "Launch"]
