"""How often the gate is wrong, and how often it sees a gain: loops of iterations with policies whose truth is known.

A suite is a sample of problems. A policy passes problem i with probability p_i; those of the base model are drawn from
a mixture of easy and hard problems like the bundled ones (mean .24, mean of p (1 - p) .10). Training moves each p_i by
up to SPREAD, as far up as down and never past 0 or 1: problems are won and lost, and nothing in the mean over all
problems there could be. On top of that comes the scenario's true gain. Answers are Bernoulli, the incumbent's are kept
as in the real loop, and the decisions are made by the gate's own functions.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from figures import Figure, finish, print_machine

from rlm_core.comparison import sign_flip_p_values
from rlm_core.config import EvaluateSection, GateSection
from rlm_core.config_file import load_config
from rlm_core.gate import Look, outcomes

Floats = npt.NDArray[np.float64]
SPREAD = 0.3
"""The standard deviation is about .1, at the upper end of what exams of the default model before and after an iteration
showed."""
BASE_MEAN = 0.65 * 0.25 / 2.75 + 0.35 * 1.0 / 1.9


@dataclass(frozen=True)
class Exam:
    """Suites of so many problems, benchmark and holdout alike, and so many answers to each."""

    problems: int
    answers: int


@dataclass(frozen=True)
class Loops:
    """What came of L loops."""

    accepted: npt.NDArray[np.bool_]
    """Whether the candidate of an iteration was accepted, `[iterations, L]`."""
    false: npt.NDArray[np.bool_]
    """Whether one was accepted whose true mean is not above the incumbent's."""


class Truth:
    """Pass probabilities `[L, P]` of one policy in each of L loops, and their means over all possible problems."""

    def __init__(self, chances: Floats, means: Floats):
        self.chances = chances
        self.means = means

    @classmethod
    def of_base(cls, loops: int, problems: int, generator: np.random.Generator) -> "Truth":
        easy = generator.random((loops, problems)) < 0.35
        chances = np.where(easy, generator.beta(1.0, 0.9, easy.shape), generator.beta(0.25, 2.5, easy.shape))
        return cls(chances.astype(np.float32), np.full(loops, BASE_MEAN))

    def trained(self, gain: float, spread: float, generator: np.random.Generator) -> "Truth":
        chances = self.chances
        if spread:
            room = np.minimum(np.minimum(chances, 1 - chances), np.float32(spread))
            chances = chances + room * (2 * generator.random(chances.shape, np.float32) - 1)
        if gain > 0:
            share = gain / (1 - self.means)
            chances = chances + (1 - chances) * share[:, None].astype(np.float32)
        elif gain < 0:
            chances = chances * (1 + gain / self.means)[:, None].astype(np.float32)
        return Truth(chances, self.means + gain)

    def where(self, condition: npt.NDArray[np.bool_], other: "Truth") -> "Truth":
        """This one where the condition `[L]` holds, else the other."""
        return Truth(
            np.where(condition[:, None], self.chances, other.chances), np.where(condition, self.means, other.means)
        )

    def sit(self, answers: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        right = np.zeros(self.chances.shape, np.int64)
        for _ in range(answers):
            right += generator.random(self.chances.shape, np.float32) < self.chances
        return right


def simulate(
    section: GateSection,
    exam: Exam,
    gains: tuple[float, ...],
    spread: float = SPREAD,
    loops: int = 10_000,
    seed: int = 0,
) -> Loops:
    """Loops of iterations in which training adds `gains` to the mean of the policy that it starts from.

    Args:
        gains: of each iteration.
        spread: how much each problem's chance moves at most, besides.
    """
    generator = np.random.default_rng(seed)
    incumbent = learner = Truth.of_base(loops, 2 * exam.problems, generator)
    known = incumbent.sit(exam.answers, generator)
    waited, tries = np.zeros(loops, int), np.zeros(loops, int)
    best, ema = np.full(loops, np.nan), np.full(loops, np.nan)
    accepted, false = [], []
    for gain in gains:
        candidate = learner.trained(gain, spread, generator)
        found = candidate.sit(exam.answers, generator)
        look = _look(known, found, exam, waited=waited, tries=tries, best=best, ema=ema)
        outcome = outcomes(look, section)
        accept, probation = outcome == "accepted", outcome == "probation"
        accepted.append(accept)
        false.append(accept & (candidate.means <= incumbent.means))
        incumbent, known = candidate.where(accept, incumbent), np.where(accept[:, None], found, known)
        learner, waited = candidate.where(probation, incumbent), np.where(probation, waited + 1, 0)
        tries = np.where(accept, tries, tries + 1)
        best = np.where(accept, np.fmax(best, look.candidate), best)
        moved = np.where(np.isnan(ema), look.candidate, ema + section.ema_weight * (look.candidate - ema))
        ema = np.where(accept, moved, ema)
    return Loops(np.array(accepted), np.array(false))


def _look(
    known: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
    exam: Exam,
    **state: npt.NDArray[Any],
) -> Look:
    (incumbent, incumbent_holdout), (candidate, holdout) = (np.hsplit(counts, 2) for counts in (known, found))
    asked = exam.problems * exam.answers
    p_better, p_worse = sign_flip_p_values(candidate - incumbent)
    return Look(
        incumbent=incumbent.sum(axis=1) / asked,
        candidate=candidate.sum(axis=1) / asked,
        difference=(candidate - incumbent).sum(axis=1) / asked,
        p_better=p_better,
        p_worse=p_worse,
        holdout_difference=(holdout - incumbent_holdout).sum(axis=1) / asked,
        **state,
    )


IN_A_LOOP = 20
DEFAULT = GateSection()
BUNDLED = Exam(problems=224, answers=EvaluateSection().samples)
QUICK = Exam(problems=186, answers=1)
"""The parts `starter` and `easy` of the bundled suites, as configs/quick.yaml has them."""
SMALL = Exam(problems=100, answers=2)
"""As somebody's own suite may be."""
NIGHTLY = load_config(Path(__file__).parents[1] / "configs" / "nightly.yaml")
STEADY = (0.03,) * 6
NONE = (0.0,) * IN_A_LOOP
NO_BETTER: dict[str, tuple[tuple[float, ...], float]] = {
    "no better in the mean": (NONE, SPREAD),
    "exactly equal": (NONE, 0.0),
    "no better but for 15 points every fifth time": ((0.15, 0.0, 0.0, 0.0, 0.0) * 4, SPREAD),
    "no better but for 10 points every third time": ((0.1, 0.0, 0.0) * 6 + (0.0, 0.0), SPREAD),
    "no better but for 10 points every second time": ((0.1, 0.0) * 10, SPREAD),
    "no better, problems won and lost at large": (NONE, 1.0),
    "a point worse each time": ((-0.01,) * IN_A_LOOP, SPREAD),
    "no better after six gains of 3 points": (STEADY + NONE[6:], SPREAD),
}
LEVELS = (
    (QUICK, DEFAULT),
    (BUNDLED, DEFAULT),
    (SMALL, DEFAULT),
    (Exam(BUNDLED.problems, NIGHTLY.evaluate.samples), NIGHTLY.gate),
)
"""Exams and settings with which the promised level is to hold in each of NO_BETTER."""
RULES = {
    "paired": DEFAULT,
    "paired without probation": GateSection(patience=0),
    "strict": GateSection(rule="strict"),
    "ema": GateSection(rule="ema"),
    "threshold at the base's true score": GateSection(rule="threshold", threshold=BASE_MEAN),
}
MEASURES: dict[str, Callable[[Loops], float]] = {
    "loops with a false accept": lambda loops: float(loops.false.any(axis=0).mean()),
    "false accepts in a loop": lambda loops: float(loops.false.sum(axis=0).mean()),
    "loops with an accept": lambda loops: float(loops.accepted.any(axis=0).mean()),
    "accepts at the last try": lambda loops: float(loops.accepted[-1].mean()),
}

Goal = tuple[float, Literal["at least", "at most"]]


@dataclass(frozen=True)
class Case:
    """One figure: what is simulated, what is counted, and what it is to come to, if that was promised."""

    measure: str
    name: str
    gains: tuple[float, ...]
    exam: Exam = BUNDLED
    section: GateSection = DEFAULT
    spread: float = SPREAD
    goal: Goal | None = None

    @property
    def title(self) -> str:
        return f"{self.measure}, {self.name}, {self.exam.problems} x {self.exam.answers}"

    def value(self) -> float:
        return MEASURES[self.measure](simulate(self.section, self.exam, self.gains, self.spread))


def promised() -> Iterator[Case]:
    for exam, section in LEVELS:
        for name, (gains, spread) in NO_BETTER.items():
            level: Goal = (1 - section.confidence, "at most")
            yield Case("loops with a false accept", name, gains, exam, section, spread, goal=level)
    for exam in (BUNDLED, QUICK):
        yield Case("loops with an accept", "3 points an iteration, 6 iterations", STEADY, exam, goal=(0.9, "at least"))


def measured() -> Iterator[Case]:
    for exam in (SMALL, Exam(56, 4), Exam(112, 2), QUICK, BUNDLED, Exam(224, 2), Exam(112, 4), Exam(448, 1)):
        for gain in (0.05, 0.1):
            yield Case("loops with an accept", f"{gain * 100:g} points at the first try", (gain,), exam)
        yield Case("loops with an accept", "3 points an iteration, 6 iterations", STEADY, exam)
    for gain in (0.05, 0.1):
        yield Case("accepts at the last try", f"{gain * 100:g} points after 5 of none", (*NONE[:5], gain))
    for name, section in RULES.items():
        for measure in ("loops with a false accept", "false accepts in a loop"):
            yield Case(measure, f"{name}, no better in the mean", NONE, section=section)
        yield Case("loops with an accept", f"{name}, 3 points an iteration, 6 iterations", STEADY, section=section)


def main() -> None:
    print_machine()
    started = time.monotonic()
    cases = [*promised(), *measured()]
    with ProcessPoolExecutor(2) as pool:
        values = list(pool.map(Case.value, cases))
    figures = []
    for case, value in zip(cases, values, strict=True):
        if case.goal is None:
            print(f"{case.title}: {value:.2f}")
        else:
            figures.append(Figure(case.title, value, *case.goal))
    print(f"{os.times().children_user:.0f} s of CPU time")
    finish([*figures, Figure("seconds", time.monotonic() - started, 300, "at most")])


if __name__ == "__main__":
    main()
