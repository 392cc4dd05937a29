"""Fixtures of the core tests: the tiny model loaded, a judged iteration of it, and the command."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rlm_cli.main import main
from rlm_core.config import RolloutSection, VerifySection
from rlm_core.judging import judge_rollouts
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.records import Rollout, Verdict
from rlm_core.rollout import sample_rollouts
from tests import tiny


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a `sandbox_name` runs in every sandbox that this machine has; those it lacks are skipped."""
    if "sandbox_name" in metafunc.fixturenames:
        from tests.core.sandbox.conftest import REASONS  # which takes a moment to find out

        metafunc.parametrize(
            "sandbox_name",
            [
                pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))
                for name, reason in REASONS.items()
                if not str(reason).endswith(("it needs Linux", "it needs macOS"))
            ],
        )


ROLLOUT = RolloutSection(group_size=6, max_tokens=20)


@pytest.fixture
def policy(tiny_model: Path) -> Policy:
    """The tiny model, loaded afresh."""
    return load_policy(str(tiny_model))


@dataclass(frozen=True)
class Judged:
    """Rollouts of the tiny model and what they were worth."""

    problems: list[Problem]
    rollouts: list[Rollout]
    verdicts: list[Verdict]


@pytest.fixture(scope="session")
def judged(tiny_model: Path) -> Judged:
    """Six problems, six rollouts each, judged in the real sandbox."""
    problems = tiny.problems(6)
    rollouts = sample_rollouts(load_policy(str(tiny_model)), problems, ROLLOUT, seed=7)
    verdicts = judge_rollouts(
        rollouts, {problem.id: problem for problem in problems}, VerifySection(partial_credit=0.5)
    )
    return Judged(problems, rollouts, verdicts)


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    code: int
    out: str
    err: str


Rlm = Callable[..., Done]
Settings = dict[str, dict[str, object]]


@pytest.fixture
def rlm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rlm:
    """The command, called in this process from an empty directory."""

    def call(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["rlm", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


def assert_refused(done: Done, code: int, *parts: str) -> None:
    assert done.code == code, done.err
    [line] = [line for line in done.err.splitlines() if line.startswith("rlm: ")]
    for part in parts:
        assert part in line
    assert "Traceback" not in done.err


@pytest.fixture
def settings(tiny_model: Path, tmp_path: Path) -> Settings:
    """Sections of a config that would work."""
    suites = {
        name: tiny.write_problems(tmp_path / f"{name}.jsonl", tiny.problems(3, i)) for i, name in enumerate("abc")
    }
    return {
        "model": {"base": str(tiny_model)},
        "generate": {"bank": suites["a"]},
        "evaluate": {"benchmark": suites["b"], "holdout": suites["c"]},
    }


def write(tmp_path: Path, content: Settings) -> str:
    """A config file of these sections."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"project": str(tmp_path / "project"), **content}))
    return str(path)
