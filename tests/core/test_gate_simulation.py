"""The simulation behind docs/gate.md: its policies have the truth that is said, and it decides as the gate does."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlm_core.config import EvaluateSection, GateSection
from rlm_core.config_file import load_config
from rlm_core.gate import decide
from rlm_core.records import AdapterRef
from rlm_core.sources import read_problems
from rlm_core.state.ledger import Base, Ledger, open_ledger
from tests.samples.exam_reports import pair

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


def test_true_gains_between_the_tries_do_not_raise_the_level(simulation: Any) -> None:
    """The hardest of the cases: large gains that are seen at once, and exams that leave little to luck."""
    gains, spread = simulation.NO_BETTER["no better but for 10 points every third time"]
    loops = simulation.simulate(GateSection(), simulation.Exam(112, 8), gains, spread, loops=300)
    assert 0 < loops.false.any(axis=0).mean() < 0.1


def test_all_bad_cases_are_held_against_the_level_with_every_exam_of_the_docs(simulation: Any) -> None:
    cases = [case for case in simulation.promised() if case.measure == "loops with a false accept"]
    held = [(case.name, case.exam.problems, case.exam.answers, round(case.goal[0], 9)) for case in cases]
    exams = [(186, 1, 0.1), (224, 1, 0.1), (100, 2, 0.1), (224, 2, 0.05)]
    assert {case.goal[1] for case in cases} == {"at most"}
    assert sorted(held) == sorted((name, *exam) for name in simulation.NO_BETTER for exam in exams)


@pytest.mark.parametrize("suite", ["benchmark", "holdout"])
def test_the_simulated_exams_are_those_of_the_bundled_suites_and_configs(simulation: Any, suite: str) -> None:
    quick, default = load_config(BENCH.parent / "configs" / "quick.yaml").evaluate, EvaluateSection()
    for exam, evaluate in ((simulation.BUNDLED, default), (simulation.QUICK, quick)):
        problems = len(read_problems(getattr(evaluate, suite)))
        assert (exam.problems, exam.answers) == (problems, evaluate.samples)


class Replay:
    """One loop again, with its exams as reports, the gate's decisions one by one, and a ledger."""

    def __init__(self, ledger: Ledger, section: GateSection, exam: Any):
        self.ledger, self.section, self.exam = ledger, section, exam
        ledger.begin(Base(name="m", fingerprint="f"), None)

    def decide(self, known: Any, found: Any) -> str:
        number = self.ledger.next_iteration()
        halves = (slice(self.exam.problems), slice(self.exam.problems, None))
        benchmark, holdout = (pair(known[half].tolist(), found[half].tolist(), self.exam.answers) for half in halves)
        candidate = AdapterRef(path=f"runs/{number}", sha256=str(number))
        past = self.ledger.past_scores(benchmark.incumbent.suite_digest)
        made = decide(number, benchmark, holdout, self.section, past, candidate, self.ledger.lineage(), 0)
        self.ledger.commit(made, self.section.ema_weight, [], {})
        return made.outcome

    def state(self) -> dict[str, float]:
        lineage, past = self.ledger.lineage(), self.ledger.past_scores()
        scores = {name: np.nan if value is None else value for name, value in (("best", past.best), ("ema", past.ema))}
        return {"waited": lineage.waited, "tries": lineage.tries, **scores}


@pytest.mark.parametrize(
    ("settings", "possible"),
    [
        ({"patience": 2}, {"accepted", "probation", "rejected"}),
        ({"rule": "strict"}, {"accepted", "rejected"}),
        ({"rule": "ema"}, {"accepted", "rejected"}),
        ({"rule": "threshold", "threshold": 0.2}, {"accepted", "rejected"}),
    ],
    ids=["paired", "strict", "ema", "threshold"],
)
def test_a_loop_decides_as_the_gate_and_the_ledger_do(
    simulation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any], possible: set[str]
) -> None:
    exams, looks = [], []
    look_at = simulation._look

    def seen(*arguments: Any, **state: Any) -> Any:
        looks.append({name: value[0] for name, value in state.items()})
        exams.append([counts[0] for counts in arguments[:2]])
        return look_at(*arguments, **state)

    monkeypatch.setattr(simulation, "_look", seen)
    section, exam = GateSection.parse(settings), simulation.Exam(40, 3)
    loops = simulation.simulate(section, exam, (0.06,) * 6 + (-0.1,) * 6, loops=1, seed=4)
    outcomes = []
    with open_ledger(tmp_path / "ledger.sqlite") as ledger:
        replay = Replay(ledger, section, exam)
        for (known, found), state in zip(exams, looks, strict=True):
            assert replay.state() == pytest.approx(state, nan_ok=True)
            outcomes.append(replay.decide(known, found))
    assert [outcome == "accepted" for outcome in outcomes] == loops.accepted[:, 0].tolist()
    assert set(outcomes) == possible
