"""Asking a person before an accept."""

from typing import Any

import pytest

from rlm_core.approval import approved, asking, without_answer
from rlm_core.config import GateSection
from rlm_core.records import Approval, GateDecision, Outcome

ASK = GateSection(approve="ask")


def decision(outcome: Outcome = "accepted") -> GateDecision:
    return GateDecision.model_validate(
        {
            "iteration": 3,
            "outcome": outcome,
            "rule": "paired",
            "reason": "a gain",
            "benchmark": None,
            "holdout": None,
            "candidate": None,
            "incumbent": None,
            "learner": None,
        }
    )


def never(_page: str, _section: GateSection) -> Approval:
    raise AssertionError("nobody is to be asked")


def says(accept: bool, comment: str = "") -> Any:
    return lambda _page, _section: Approval(accept=accept, comment=comment)


def test_only_an_accept_is_asked_about_and_only_where_the_config_says_so() -> None:
    assert approved(decision(), "", GateSection(), never) == decision()
    for outcome in ("rejected", "probation"):
        assert approved(decision(outcome), "", ASK, never) == decision(outcome)


def test_an_answer_decides_and_is_recorded() -> None:
    yes = approved(decision(), "", ASK, says(True))
    assert (yes.outcome, yes.reason, yes.approval) == (
        "accepted",
        "approved by a person: a gain",
        Approval(accept=True),
    )
    no = approved(decision(), "", ASK, says(False, "too long"))
    assert (no.outcome, no.reason) == ("rejected", "refused by a person (too long): a gain")


def test_somebody_asking_takes_the_place_of_the_usual_way() -> None:
    with asking(says(False)):
        assert approved(decision(), "", ASK, never).outcome == "rejected"
    assert approved(decision(), "", ASK, says(True)).outcome == "accepted"


@pytest.mark.parametrize(("unanswered", "outcome"), [("reject", "rejected"), ("accept", "accepted")])
def test_without_an_answer_the_config_decides(unanswered: Any, outcome: str) -> None:
    section = GateSection(approve="ask", unanswered=unanswered)
    made = approved(decision(), "", section, lambda _, given: without_answer(given))
    assert made.outcome == outcome
    assert "because nobody answered in time" in made.reason
