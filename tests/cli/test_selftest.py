"""`rlm verify --self-test` says what held and what did not."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_cli import selftest as command
from tests.command import Rlm
from tests.core.sandbox.conftest import each_sandbox
from tests.samples.selftest import BROKEN


@each_sandbox
def test_the_command_says_that_it_holds(sandbox_name: str, few: Callable[..., None], rlm: Rlm) -> None:
    few("plain", "constant", "read-file")
    done = rlm("verify", "--self-test", "--sandbox", sandbox_name)
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in lines[1:4]] == [["✓", "plain"], ["✓", "constant"], ["✓", "read-file"]]
    assert lines[-2].startswith(f"3 answers judged by cases and pytest in {sandbox_name}")
    assert lines[-1] == "holds"


def test_the_command_says_what_did_not_hold(monkeypatch: pytest.MonkeyPatch, rlm: Rlm) -> None:
    monkeypatch.setattr(command, "self_test", lambda *_: BROKEN)
    done = rlm("verify", "--self-test")
    assert done.code == 1
    assert done.out.splitlines()[-1] == "does not hold: fire (cases): it burns"
    assert "✗ fire: it burns" in done.out
    assert "[red]" in done.out
    assert "not tried here: water: there is none" in done.out
    done = rlm("verify", "--self-test", "--json")
    shown = json.loads(done.out)
    assert (done.code, shown["holds"], shown["tried"][1]["why_not"]) == (1, False, ["it burns"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--self-test", "--sandbox", "chroot"], "could not be tried: there is no sandbox called 'chroot'"),
        (["--self-test", "problem.yaml"], "--self-test brings its own answers"),
        (["--self-test", "problem.yaml", "answer.py"], "--self-test brings its own answers"),
        ([], "PROBLEM and ANSWER are needed"),
        (["problem.yaml"], "PROBLEM and ANSWER are needed"),
    ],
)
def test_what_cannot_be_tried_is_one_line_and_exit_code_2(rlm: Rlm, arguments: list[str], message: str) -> None:
    done = rlm("verify", *arguments)
    assert (done.code, done.out) == (2, "")
    [line] = done.err.splitlines()
    assert message in line


def test_canaries_that_cannot_be_planted_are_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, rlm: Rlm, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    done = rlm("verify", "--self-test")
    assert done.code == 2
    assert "could not be tried: cannot plant" in done.err
