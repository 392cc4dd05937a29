"""Asking before an accept, in the terminal too."""

import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_cli.approve import TerminalQuestion, asks_here
from rlm_cli.watch import Watcher
from rlm_core import progress
from rlm_core.approval import approved, asking, without_answer
from rlm_core.config import GateSection
from rlm_core.errors import Interrupted, UsageError
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


# -------------------------------------------------------------------------------------------------------- in a terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; the end to type at."""
    typing, here = pty.openpty()
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with os.fdopen(here) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typing
    os.close(typing)


def test_in_a_terminal_the_page_is_shown_and_the_answer_read(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    os.write(terminal, b"maybe\nN  needs more work\n")
    assert TerminalQuestion(Watcher())("# Iteration 3: accepted", ASK) == Approval(
        accept=False, comment="needs more work"
    )
    assert "Iteration 3: accepted" in capsys.readouterr().err
    os.write(terminal, b"yes\n")
    assert TerminalQuestion(Watcher())("", ASK) == Approval(accept=True)


def test_in_a_terminal_the_time_is_limited(terminal: int) -> None:
    assert terminal
    started = time.monotonic()
    section = GateSection(approve="ask", approve_within_s=0.2, unanswered="accept")
    assert TerminalQuestion(Watcher())("", section) == Approval(accept=True, in_time=False)
    assert time.monotonic() - started < 5


def test_a_terminal_that_is_closed_gives_no_answer(terminal: int) -> None:
    os.write(terminal, b"\x04")  # end of file
    assert not TerminalQuestion(Watcher())("", ASK).in_time


def test_a_request_to_stop_is_noticed_while_waiting(terminal: int) -> None:
    assert terminal
    with progress.stopped(), pytest.raises(Interrupted):
        TerminalQuestion(Watcher())("", ASK)


def test_where_to_ask_is_known_before_any_work(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal
    assert asks_here(ASK)
    assert not asks_here(GateSection())
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert not asks_here(ASK)
    monkeypatch.delenv("PREFECT_API_URL")
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        with pytest.raises(UsageError, match=r"gate\.approve: ask needs somebody to ask; run rlm in a terminal, or"):
            asks_here(ASK)
