"""kill -9 at many moments of an iteration: started again, each ends like one that was not disturbed.

RLM_CHAOS_KILLS says how many moments, RLM_CHAOS_SEED which ones.
"""

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from rlm_core.project import Project
from tests.chaos.kills import assert_survives, left_over, outcome, run_iteration
from tests.conftest import MakeConfig

KILLS = int(os.environ.get("RLM_CHAOS_KILLS", "50"))
SEED = int(os.environ.get("RLM_CHAOS_SEED", "0")) or random.randrange(1, 10**6)
STAGES = ("generate", "mutate", "rollout", "verify", "train", "evaluate", "evaluate_verify")


@pytest.mark.timeout(7_200)
def test_random_moments(make_config: MakeConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """By turns a moment by the clock, and one before, within or after a write: those are the dangerous ones."""
    config = make_config()
    project = Project(config.with_name("project"))
    ended = run_iteration(config).ended
    assert left_over(config) == []
    expected, generator = outcome(project), random.Random(SEED)
    failures = []
    for number in range(KILLS):
        if number % 2:
            moment = f"write:{generator.randint(1, ended['writes'])}"
        else:
            moment = f"time:{generator.uniform(0, 0.9 * ended['seconds']):.3f}"
        started = time.monotonic()
        try:
            told = assert_survives(config, moment, expected)
        except AssertionError as error:
            failures.append(told := str(error))
        with capsys.disabled():
            print(f"seed {SEED}, {number + 1} of {KILLS}, {moment}, {time.monotonic() - started:.1f} s: {told[:2000]}")
    assert failures == []


@pytest.mark.timeout(7_200)
def test_the_default_model_in_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One iteration that is killed in the middle of every stage, against one that is not disturbed."""
    config = tmp_path / "config.yaml"
    project = Project(config.with_name("project"))
    settings = (Path(__file__).parents[1] / "slow" / "smoke.yaml").read_text()
    config.write_text(f"project: {project.root}\n{settings}")
    assert run_iteration(config, timeout_s=3_600).code == 0
    expected = outcome(project)
    shutil.rmtree(project.root)
    again = set()
    before = set()
    for stage in STAGES:
        killed = run_iteration(config, f"report:{stage}", timeout_s=3_600)
        assert killed.code == -9, (stage, killed.errors)
        again |= {f"killed in {stage}: {work}" for work in before & killed.finished}
        before |= killed.finished
        with capsys.disabled():
            print(f"killed in {stage}")
    resumed = run_iteration(config, timeout_s=3_600)
    assert resumed.code == 0, resumed.errors
    assert outcome(project) == expected
    assert len(again | (before & resumed.finished)) <= len(STAGES)
    assert left_over(config) == []
