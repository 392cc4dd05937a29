"""Trackers are named before any work when they are missing, and are never in the way of an iteration."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_core import trackers
from rlm_core.errors import UsageError
from rlm_core.state.project import Project
from rlm_core.trackers import Told, require_trackers, tell_trackers
from tests.samples.ended import LOSSES, write_run


def test_one_that_is_not_installed_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"trackers: mlflow is not installed; .*rlm-flows\[mlflow\]"):
        require_trackers(["mlflow"])
    require_trackers([])


def test_one_that_cannot_be_told_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: str) -> Any:
        raise ConnectionError("nobody\nanswers")

    monkeypatch.setattr(trackers, "import_module", unreachable)
    heard: list[str] = []
    tell_trackers(["wandb", "mlflow"], tmp_path, 3, heard.append)
    assert heard == [f"{name} was not told of iteration 3: nobody answers" for name in ("wandb", "mlflow")]


def test_it_is_told_each_step_and_the_figures_of_the_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(Project(tmp_path / "quick"), 3)
    heard: list[Told] = []
    monkeypatch.setattr(trackers, "import_module", lambda _: SimpleNamespace(send=heard.append))
    tell_trackers(["wandb"], tmp_path / "quick", 3, pytest.fail)
    [told] = heard
    assert (told.project, told.run, told.config["seed"]) == ("quick", "iteration 3", 7)
    assert [(step["step"], step["loss"]) for step in told.steps] == [(1, LOSSES[0]), (2, LOSSES[1])]
    assert (told.figures["benchmark/candidate"], told.figures["accepted"]) == (0.4, 1.0)
