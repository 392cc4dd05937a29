"""What a command prints is the text itself, also where it looks like rich's markup."""

from pathlib import Path

import pytest

from rlm_cli import doctor
from rlm_cli.watch import Watcher
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests.command import Rlm, Settings, write
from tests.samples.ledger import BASE, FIRST

LIKE_MARKUP = "[bold]a[/b]"


def test_status_shows_a_path_that_looks_like_markup(rlm: Rlm, settings: Settings, tmp_path: Path) -> None:
    config = write(tmp_path, settings)
    with open_ledger(Project(tmp_path / "project").ledger) as ledger:
        ledger.begin(BASE, FIRST.model_copy(update={"path": f"{LIKE_MARKUP}/adapter"}))
    done = rlm("status", "-c", config)
    assert done.code == 0, done.err
    assert f"{LIKE_MARKUP}/adapter" in done.out.replace("\n", "")


def test_a_warning_that_looks_like_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Watcher().say(f"a shard is tried again: {LIKE_MARKUP}")
    assert capsys.readouterr().err == f"a shard is tried again: {LIKE_MARKUP}\n"


def test_the_doctor_puts_its_marks_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [("a", LIKE_MARKUP, True, True), ("b", "no", False, True), ("c", "", False, False)]
    monkeypatch.setattr(doctor, "_findings", lambda: (doctor.Finding(*each) for each in found))
    assert doctor.examine_machine() == 1
    assert capsys.readouterr().out == f"      ok  a: {LIKE_MARKUP}\n missing  b: no\n    note  c: \n"
