"""Asking before an accept in the terminal."""

import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_cli.approve import TerminalQuestion, asks_here
from rlm_cli.watch import Watcher
from rlm_core import progress
from rlm_core.config import GateSection
from rlm_core.errors import Interrupted, UsageError
from rlm_core.records import Approval

ASK = GateSection(approve="ask")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; the end to type at."""
    typing, here = pty.openpty()
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with os.fdopen(here) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typing
    os.close(typing)


def test_the_page_is_shown_and_the_answer_read(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    os.write(terminal, b"maybe\nN  needs more work\n")
    assert TerminalQuestion(Watcher())("# Iteration 3: accepted", ASK) == Approval(
        accept=False, comment="needs more work"
    )
    assert "Iteration 3: accepted" in capsys.readouterr().err
    os.write(terminal, b"yes\n")
    assert TerminalQuestion(Watcher())("", ASK) == Approval(accept=True)


def test_the_time_is_limited(terminal: int) -> None:
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
