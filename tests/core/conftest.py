"""Fixtures of the core tests: the tiny model loaded, and a judged iteration of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlm_core.config import RolloutSection, VerifySection
from rlm_core.judging import judge_rollouts
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.records import Rollout, Verdict
from rlm_core.rollout import sample_rollouts
from rlm_core.selftest import run
from rlm_core.selftest.answers import bundled
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


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Reduces the self-test to the answers of these names."""

    def reduce(*names: str) -> None:
        whole = bundled()
        some = tuple(answer for answer in whole.answers if answer.name in names)
        assert len(some) == len(names)
        monkeypatch.setattr(run, "bundled", lambda: whole.model_copy(update={"answers": some}))

    return reduce
