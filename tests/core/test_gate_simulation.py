"""The simulation behind docs/gate.md: its policies have the truth that is said, and it decides as the gate does."""

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlm_core.config import GateSection
from rlm_core.gate import decide
from rlm_core.records import AdapterRef, Lineage, PastScores
from tests.core.exam_reports import pair

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def simulation() -> Any:
    """bench/gate_simulation.py, which is a program and no part of a package."""
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("gate_simulation", BENCH / "gate_simulation.py")
        assert spec is not None and spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCH))


def test_training_that_adds_nothing_leaves_the_mean_and_moves_the_problems(simulation: Any) -> None:
    generator = np.random.default_rng(0)
    base = simulation.Truth.of_base(400, 300, generator)
    assert base.chances.mean() == pytest.approx(simulation.BASE_MEAN, abs=0.005)
    trained = base.trained(0.0, simulation.SPREAD, generator)
    assert trained.chances.mean() == pytest.approx(base.chances.mean(), abs=0.002)
    assert 0.08 < (trained.chances - base.chances).std() < 0.12
    assert (base.trained(0.0, 0.0, generator).chances == base.chances).all()


@pytest.mark.parametrize("gain", [0.1, -0.05])
def test_a_gain_is_a_gain_in_the_mean(simulation: Any, gain: float) -> None:
    generator = np.random.default_rng(0)
    base = simulation.Truth.of_base(400, 300, generator)
    trained = base.trained(gain, simulation.SPREAD, generator)
    assert trained.chances.mean() - base.chances.mean() == pytest.approx(gain, abs=0.004)
    assert trained.means - base.means == pytest.approx(gain)


def test_few_loops_show_what_many_prove(simulation: Any) -> None:
    def share(gains: tuple[float, ...], **settings: Any) -> float:
        loops = simulation.simulate(GateSection(**settings), simulation.BUNDLED, gains, loops=300)
        return float(loops.accepted.any(axis=0).mean())

    nothing, steady = (0.0,) * 20, (0.03,) * 6
    assert share(nothing) < 0.1
    assert share(steady) > 0.9
    assert share(steady, patience=0) < 0.6
    assert share(nothing, rule="strict") > 0.8


def test_what_is_called_a_false_accept_is_one(simulation: Any) -> None:
    loops = simulation.simulate(GateSection(rule="strict"), simulation.BUNDLED, (0.0, 0.1), loops=100)
    assert loops.accepted.any()
    assert (loops.false[0] == loops.accepted[0]).all()
    assert not loops.false[1].any()


def test_a_loop_decides_as_the_gate_does(simulation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop again, with its exams as reports and the gate's decisions one by one."""
    exams, looks = [], []
    look_at = simulation._look

    def seen(*arguments: Any, **state: Any) -> Any:
        looks.append({name: value[0] for name, value in state.items()})
        exams.append([counts[0] for counts in arguments[:2]])
        return look_at(*arguments, **state)

    monkeypatch.setattr(simulation, "_look", seen)
    section, exam = GateSection(patience=2), simulation.Exam(40, 3)
    loops = simulation.simulate(section, exam, (0.06,) * 6 + (-0.1,) * 6, loops=1, seed=4)
    candidate, outcomes = AdapterRef(path="c", sha256="c"), []
    for (known, found), state in zip(exams, looks, strict=True):
        (benchmark, holdout) = (
            pair(known[half].tolist(), found[half].tolist(), exam.answers) for half in (slice(40), slice(40, None))
        )
        lineage = Lineage(None, None, int(state["waited"]), int(state["tries"]))
        outcomes.append(decide(1, benchmark, holdout, section, PastScores(), candidate, lineage, 0).outcome)
    assert [outcome == "accepted" for outcome in outcomes] == loops.accepted[:, 0].tolist()
    assert {"accepted", "probation", "rejected"} == set(outcomes)
    waited = [int(state["waited"]) for state in looks]
    assert [now > before for before, now in pairwise(waited)] == [outcome == "probation" for outcome in outcomes[:-1]]
