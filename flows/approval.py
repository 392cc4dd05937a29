"""Asking a person in Prefect's UI: the flow run pauses with a form."""

import contextvars
import threading
import time
from contextlib import suppress
from uuid import UUID, uuid4

from prefect.context import FlowRunContext
from prefect.exceptions import NotPausedError
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput

from rlm_core.approval import without_answer
from rlm_core.config import GateSection
from rlm_core.progress import check
from rlm_core.records import Approval

_LOOK_EVERY_S = 0.5
_POLL_S = 5
_SLACK_S = 600
"""Prefect fails a run whose pause has timed out, so the run is resumed before that."""


class ApprovalForm(RunInput):
    """The form."""

    accept: bool
    comment: str = ""


def ask_in_ui(page: str, section: GateSection) -> Approval:
    """Pause the flow run until somebody resumed it with an answer, or the time is up.

    Raises:
        Interrupted: a stop was asked for.
    """
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None
    pause = _Pause(page, section.approve_within_s)
    deadline = time.monotonic() + section.approve_within_s
    nobody = f"nobody {uuid4()}"
    while not pause.ended(_LOOK_EVERY_S):
        check("gate")
        if time.monotonic() >= deadline:
            _resume(context.flow_run.id, nobody)
    # Whose answer the server took shows in what it gives back: somebody may have been quicker by a moment.
    answer = pause.answer()
    return without_answer(section) if answer.comment == nobody else answer


def _resume(run: UUID, nobody: str) -> None:
    """Resume a run that nobody answered. Where that cannot be done yet, or any more, the next look finds it so."""
    with suppress(NotPausedError, RuntimeError):  # answered at the last moment; paused, and its form not yet there
        resume_flow_run(run, run_input={"accept": False, "comment": nobody})


class _Pause:
    """A pause of the flow run. It waits in a thread, where it cannot keep a request to stop from being noticed."""

    def __init__(self, page: str, within_s: float):
        self._form = ApprovalForm.with_initial_data(description=page)
        self._timeout_s = int(within_s) + _SLACK_S
        self._outcome: list[Approval | Exception] = []
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._wait,), name="approval", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            answer = pause_flow_run(self._form, timeout=self._timeout_s, poll_interval=_POLL_S)
            self._outcome.append(Approval(accept=answer.accept, comment=answer.comment))
        except Exception as error:
            self._outcome.append(error)

    def ended(self, wait_s: float) -> bool:
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def answer(self) -> Approval:
        [outcome] = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
