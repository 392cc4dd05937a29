"""Asking a person before an accept, where there is one to ask."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlm_core.config import GateSection
from rlm_core.records import Approval, GateDecision

Asker = Callable[[str, GateSection], Approval]
"""Given the decision's page and the settings, the answer."""

_askers: list[Asker] = []


@contextmanager
def asking(ask: Asker) -> Iterator[None]:
    """Have questions answered by `ask` for the time of the block, in place of the flow's own way."""
    _askers.append(ask)
    try:
        yield
    finally:
        _askers.remove(ask)


def approved(decision: GateDecision, page: str, section: GateSection, otherwise: Asker) -> GateDecision:
    """The decision as a person wants it, when one is to be asked about it.

    Args:
        otherwise: asks, unless there is somebody `asking`.
    """
    if not waits_for_answer(decision, section):
        return decision
    ask = _askers[-1] if _askers else otherwise
    return answered(decision, ask(page, section))


def waits_for_answer(decision: GateDecision, section: GateSection) -> bool:
    """Whether this is what a rule proposes, and a person is still to be asked about it."""
    return section.approve == "ask" and decision.accepted and decision.approval is None


def without_answer(section: GateSection) -> Approval:
    """What is done when nobody answered in time."""
    return Approval(accept=section.unanswered == "accept", in_time=False)


def answered(decision: GateDecision, approval: Approval) -> GateDecision:
    """An accept after somebody was asked: it stands, or becomes a rejection."""
    assert decision.accepted
    who = "by a person" if approval.in_time else "because nobody answered in time"
    comment = f" ({approval.comment})" if approval.comment else ""
    return decision.model_copy(
        update={
            "outcome": "accepted" if approval.accept else "rejected",
            "reason": f"{'approved' if approval.accept else 'refused'} {who}{comment}: {decision.reason}",
            "approval": approval,
        }
    )
