"""Asking a person in Prefect's UI: the flow run pauses with a form."""

import contextvars
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.exceptions import NotPausedError
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.input import RunInput
from pydantic import Field

from rlm_core.approval import without_answer
from rlm_core.config import GateSection
from rlm_core.pages.question import question
from rlm_core.progress import check
from rlm_core.records import Approval, GateDecision
from tasks.events import tell

_LOOK_EVERY_S = 0.5
_POLL_S = 5
_SLACK_S = 600
"""Prefect fails a run whose pause has timed out, so the run is resumed before that."""


class ApprovalForm(RunInput):
    """The form. The answer is typed: a switch that nobody touched says nothing, and a list in this dialog of Prefect's
    older UI does not open."""

    answer: str = Field(
        pattern=r"^(accept|reject)$",
        description="Type accept or reject. accept: the candidate becomes the incumbent. reject: it is thrown away, "
        "and training goes back to the incumbent.",
    )
    comment: str = Field("", description="Is kept with the decision.")


class UiQuestion:
    """Asks about what the gate proposes."""

    def __init__(self, proposed: GateDecision, project: str):
        self._proposed, self._project = proposed, project

    def __call__(self, _page: str, section: GateSection) -> Approval:
        """Pause the flow run until somebody resumed it with an answer, or the time is up.

        Raises:
            Interrupted: a stop was asked for.
        """
        context = FlowRunContext.get()
        assert context is not None and context.flow_run is not None
        deadline = time.monotonic() + section.approve_within_s
        until = f"{datetime.now(UTC) + timedelta(seconds=section.approve_within_s):%Y-%m-%d %H:%M:%S} UTC"
        pause = _Pause(question(self._proposed, section, until), section.approve_within_s)
        self._tell(until, section)
        nobody = f"nobody {uuid4()}"
        while not pause.ended(_LOOK_EVERY_S):
            check("gate")
            if time.monotonic() >= deadline:
                _resume(context.flow_run.id, nobody)
        # Whose answer the server took shows in what it gives back: somebody may have been quicker by a moment.
        answer = pause.answer()
        if answer.comment == nobody:
            return without_answer(section)
        return Approval(accept=answer.answer == "accept", comment=answer.comment)

    def _tell(self, until: str, section: GateSection) -> None:
        """Make known that somebody is waited for, in the log and to automations."""
        reason = (
            f"accept or reject? Resume on the run's page asks; without an answer until {until}: {section.unanswered}"
        )
        get_run_logger().info(reason)
        tell("asked", self._project, {"iteration": self._proposed.iteration, "reason": reason})


def _resume(run: UUID, nobody: str) -> None:
    """Resume a run that nobody answered. Where that cannot be done yet, or any more, the next look finds it so."""
    with suppress(NotPausedError, RuntimeError):  # answered at the last moment; paused, and its form not yet there
        resume_flow_run(run, run_input={"answer": "reject", "comment": nobody})


class _Pause:
    """A pause of the flow run. It waits in a thread, where it cannot keep a request to stop from being noticed."""

    def __init__(self, description: str, within_s: float):
        self._form = ApprovalForm.with_initial_data(description=description)
        self._timeout_s = int(within_s) + _SLACK_S
        self._outcome: list[ApprovalForm | Exception] = []
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._wait,), name="approval", daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._outcome.append(pause_flow_run(self._form, timeout=self._timeout_s, poll_interval=_POLL_S))
        except Exception as error:
            self._outcome.append(error)

    def ended(self, wait_s: float) -> bool:
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def answer(self) -> ApprovalForm:
        [outcome] = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
