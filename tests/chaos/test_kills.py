"""kill -9 at many moments of an iteration: started again, each ends like one that was not disturbed.

RLM_CHAOS_KILLS says how many moments, RLM_CHAOS_SEED which ones, and RLM_CHAOS_FIRST with which of them to begin: the
next one to that of the last line printed continues a run of the same seed. RLM_CHAOS_STAGES says in which stages the
real model is killed.
"""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_core.sources import read_problems
from rlm_core.state.project import Project
from tests import tiny
from tests.chaos.kills import SEED, TOO_LATE, Victim, left_over, outcome, run_iteration
from tests.conftest import MakeConfig

KILLS = int(os.environ.get("RLM_CHAOS_KILLS", "50"))
FIRST = int(os.environ.get("RLM_CHAOS_FIRST", "1"))
STAGES = os.environ.get(
    "RLM_CHAOS_STAGES", "generate,mutate,filter,rollout,verify,train,evaluate,evaluate_verify"
).split(",")
_KILLED_IN_TIME = 0.7
"""Share of the moments at least that are before the commit. The others are after it, most of them on purpose."""
_AROUND_THE_DECISION = 8
"""Writes from the decision's file to the ledger's backup, whose last are the backup's."""
_EXAM = 12
"""Problems of each suite: what is killed is the same in a short exam."""


@pytest.mark.timeout(7_200)
def test_kills_at_random_moments_change_nothing_in_the_end(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a first iteration, and of a second one that goes on from an adapter, its optimizer and a corpus."""
    config = make_config(gate={"rule": "threshold", "threshold": 0.0}, train={"rehearsal": {"share": 0.2}})
    victims = [Victim.of(config, number) for number in (1, 2)]
    assert victims[1].expected["decision"]["learner"] is not None
    failures, survived = [], 0
    for number in range(FIRST, KILLS + 1):
        victim = victims[number // 2 % 2]
        moment, started = _moment(number, victim.straight.ended), time.monotonic()
        try:
            while (told := victim.assert_survives(moment)) == TOO_LATE:
                moment = _earlier(moment)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failures.append(told := f"{moment}: {error}")
        survived += told.startswith("survived")
        with capsys.disabled():
            print(
                f"seed {SEED}, {number} of {KILLS}, iteration {victim.number}, {moment}, "
                f"{time.monotonic() - started:.1f} s: {told[:2000]}",
                flush=True,
            )
    assert failures == []
    assert survived >= _KILLED_IN_TIME * (KILLS + 1 - FIRST)


def _moment(number: int, ended: dict[str, Any]) -> str:
    """By turns a moment by the clock, and one before, within or after a write: those are the dangerous ones.

    Every sixth is around the decision: from its file over the ledger's commit to the ledger's backup.
    """
    generator = random.Random(f"{SEED}:{number}")
    if number % 2:
        return f"time:{generator.uniform(0, 0.9 * ended['seconds']):.3f}"
    if number % 6 == 0:
        return f"decision:{1 + number // 6 % _AROUND_THE_DECISION}"
    return f"write:{generator.randint(1, ended['writes'] - ended['decision_writes'])}"


def _earlier(moment: str) -> str:
    """Half as late by the clock: the machine is quicker than it was."""
    kind, _, seconds = moment.partition(":")
    assert kind == "time", f"{moment}: the iteration ended before"
    return f"{kind}:{float(seconds) / 2:.3f}"


@pytest.mark.timeout(7_200)
def test_the_default_model_killed_in_any_stage_ends_as_if_it_had_not_been(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One iteration that is killed in the middle of every stage, against one that is not disturbed."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - started:.0f} s: {line}", flush=True)

    started = time.monotonic()
    config = _small_iteration_of_the_default_model(tmp_path)
    project = Project(config.with_name("project"))
    assert run_iteration(config, timeout_s=3_600).code == 0
    expected = outcome(project)
    say("one iteration without a kill has ended")
    shutil.rmtree(project.root)
    again, before = set[str](), set[str]()
    for stage in STAGES:
        killed = run_iteration(config, f"report:{stage}", timeout_s=3_600)
        assert killed.code == -9, (stage, killed.errors)
        again |= {f"killed in {stage}: {work}" for work in before & killed.finished}
        before |= killed.finished
        say(f"killed in {stage}")
    resumed = run_iteration(config, timeout_s=3_600)
    assert resumed.code == 0, resumed.errors
    assert outcome(project) == expected
    assert len(again | (before & resumed.finished)) <= len(STAGES)
    assert left_over(config) == []
    say("ended like the one without")


def _small_iteration_of_the_default_model(directory: Path) -> Path:
    settings = yaml.safe_load((Path(__file__).parents[1] / "slow" / "smoke.yaml").read_text())
    # The model's proposals may all be none, and nothing be filtered.
    settings["generate"]["sources"] = {"model": 1, "procedural": 2, "bank": 1}
    for kind in ("benchmark", "holdout"):
        problems = read_problems(f"bank:{kind}[starter]")[:_EXAM]
        settings["evaluate"][kind] = tiny.write_problems(directory / f"{kind}.jsonl", problems)
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump({"project": str(directory / "project"), **settings}))
    return config
