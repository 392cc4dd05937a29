"""Asking about an accept in the terminal of `rlm run`, which has no UI of its own."""

import os
import select
import sys
import time

from rich.markdown import Markdown
from rich.text import Text

from rlm_cli.terminal import plain_console
from rlm_cli.watch import Watcher
from rlm_core.approval import without_answer
from rlm_core.config import GateSection
from rlm_core.errors import UsageError
from rlm_core.progress import check
from rlm_core.records import Approval

_LOOK_EVERY_S = 0.5


def asks_here(section: GateSection) -> bool:
    """Whether questions are to be put in this terminal: they are to be put, and Prefect has no UI for it.

    Raises:
        UsageError: there is nobody to ask.
    """
    if section.approve == "never" or os.environ.get("PREFECT_API_URL"):
        return False
    if not sys.stdin.isatty():
        raise UsageError(
            "gate.approve: ask needs somebody to ask; run rlm in a terminal, or set PREFECT_API_URL for a UI"
        )
    return True


class TerminalQuestion:
    """Asks below the decision's page, while the progress bars are away."""

    def __init__(self, watcher: Watcher):
        self._watcher = watcher
        self._console = plain_console(stderr=True)

    def __call__(self, page: str, section: GateSection) -> Approval:
        """Raises Interrupted when a stop was asked for."""
        with self._watcher.aside():
            self._console.print(Markdown(page))
            self._console.print(
                Text.assemble(
                    ("Accept it?", "bold"),
                    " y or n, and a comment if you like; "
                    f"without an answer in {section.approve_within_s:g} s: {section.unanswered}",
                )
            )
            deadline = time.monotonic() + section.approve_within_s
            while (line := _line_until(deadline)) is not None:
                word, _, comment = line.strip().partition(" ")
                if word.lower() in ("y", "yes", "n", "no"):
                    return Approval(accept=word.lower().startswith("y"), comment=comment.strip())
                self._console.print("y or n?")
        return without_answer(section)


def _line_until(deadline: float) -> str | None:
    """The next line that is typed; None when time is up or nothing more can come."""
    while time.monotonic() < deadline:
        check("gate")
        ready, _, _ = select.select([sys.stdin], [], [], min(_LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))
        if ready:
            return sys.stdin.readline() or None
    return None
