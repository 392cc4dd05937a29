"""How often the gate is wrong, and how often it sees a gain: loops of iterations with policies whose truth is known.

A suite is a sample of problems. A policy passes problem i with probability p_i; those of the base model are drawn from
a mixture of easy and hard problems like the bundled ones (mean .24, mean of p (1 - p) .10). Training moves them to
Beta(SPREAD p, SPREAD (1 - p)), whose mean is p: each problem is won or lost, and nothing in the mean over all problems
there could be. On top of that comes the scenario's true gain. Answers are Bernoulli, the incumbent's are kept as in the
real loop, and the decisions are made by the gate's own functions.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from figures import Figure, finish, print_machine

from rlm_core.comparison import sign_flip_p_values
from rlm_core.config import EvaluateSection, GateSection
from rlm_core.gate import Look, outcomes

Floats = npt.NDArray[np.float64]
SPREAD = 9.0
"""A training changes each p_i by some .1: what two exams of the default model before and after an iteration showed."""
BASE_MEAN = 0.65 * 0.25 / 2.75 + 0.35 * 1.0 / 1.9


@dataclass(frozen=True)
class Exam:
    """Suites of so many problems, benchmark and holdout alike, and so many answers to each."""

    problems: int = 72
    answers: int = 4


@dataclass(frozen=True)
class Loops:
    """What came of L loops."""

    accepted: npt.NDArray[np.bool_]
    """Whether the candidate of an iteration was accepted, `[iterations, L]`."""
    false: npt.NDArray[np.bool_]
    """Whether one was accepted whose true mean is not above the incumbent's."""

    def share_with_false(self) -> float:
        return float(self.false.any(axis=0).mean())

    def share_accepted_within(self, iterations: int) -> float:
        return float(self.accepted[:iterations].any(axis=0).mean())


class Truth:
    """Pass probabilities `[L, P]` of one policy in each of L loops, and their means over all possible problems."""

    def __init__(self, chances: Floats, means: Floats):
        self.chances = chances
        self.means = means

    @classmethod
    def of_base(cls, loops: int, problems: int, generator: np.random.Generator) -> "Truth":
        easy = generator.random((loops, problems)) < 0.35
        chances = np.where(easy, generator.beta(1.0, 0.9, easy.shape), generator.beta(0.25, 2.5, easy.shape))
        return cls(chances, np.full(loops, BASE_MEAN))

    def trained(self, gain: float, spread: float | None, generator: np.random.Generator) -> "Truth":
        chances = self.chances
        if spread is not None:
            bounded = chances.clip(1e-9, 1 - 1e-9)
            chances = generator.beta(spread * bounded, spread * (1 - bounded))
        if gain > 0:
            share = gain / (1 - self.means)
            chances = chances + (1 - chances) * share[:, None]
        elif gain < 0:
            chances = chances * (1 + gain / self.means)[:, None]
        return Truth(chances, self.means + gain)

    def where(self, condition: npt.NDArray[np.bool_], other: "Truth") -> "Truth":
        """This one where the condition `[L]` holds, else the other."""
        return Truth(
            np.where(condition[:, None], self.chances, other.chances), np.where(condition, self.means, other.means)
        )

    def sit(self, answers: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        return generator.binomial(answers, self.chances.clip(0, 1))


def simulate(
    section: GateSection,
    exam: Exam,
    gains: tuple[float, ...],
    spread: float | None = SPREAD,
    loops: int = 10_000,
    seed: int = 0,
) -> Loops:
    """Loops of iterations in which training adds `gains` to the mean of the policy that it starts from.

    Args:
        gains: of each iteration.
        spread: how much each problem's chance moves besides; None does not move it.
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
        tries = np.where(accept, 0, tries + 1)
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
BUNDLED = Exam(problems=72, answers=EvaluateSection().samples)
QUICK = Exam(problems=53, answers=4)
LARGE = Exam(problems=300, answers=1)
"""The parts `starter` and `easy` of the bundled suites, as configs/quick.yaml has them."""
NO_BETTER: dict[str, tuple[tuple[float, ...], float | None]] = {
    "no better in the mean": ((0.0,) * IN_A_LOOP, SPREAD),
    "no better, problems won and lost at large": ((0.0,) * IN_A_LOOP, 2.0),
    "exactly equal": ((0.0,) * IN_A_LOOP, None),
    "a point worse each time": ((-0.01,) * IN_A_LOOP, SPREAD),
    "no better after six gains of 3 points": ((0.03,) * 6 + (0.0,) * (IN_A_LOOP - 6), SPREAD),
    "no better but for 8 points every fifth time": ((0.08, 0.0, 0.0, 0.0, 0.0) * 4, SPREAD),
    "no better but for 15 points every fifth time": ((0.15, 0.0, 0.0, 0.0, 0.0) * 4, SPREAD),
    "no better but for 10 points every third time": ((0.1, 0.0, 0.0) * 6 + (0.0, 0.0), SPREAD),
}


def main() -> None:
    print_machine()
    started = time.monotonic()
    section = GateSection()
    figures = [figure for exam in (BUNDLED, QUICK, LARGE) for figure in _false_accepts(section, exam)]
    for exam in (BUNDLED, LARGE):
        value = simulate(section, exam, (0.03,) * 6).share_accepted_within(6)
        figures.append(Figure(f"3 points an iteration accepted within 6, {_named(exam)}", value, 0.9))
    print("\nwithout a goal:")
    _print_power(section)
    _print_other_rules()
    print(f"\n{time.monotonic() - started:.0f} s")
    finish(figures)


def _false_accepts(section: GateSection, exam: Exam) -> Iterator[Figure]:
    for name, (gains, spread) in NO_BETTER.items():
        value = simulate(section, exam, gains, spread).share_with_false()
        yield Figure(f"loops with a false accept, {name}, {_named(exam)}", value, 1 - section.confidence, "at most")


def _print_power(section: GateSection) -> None:
    for exam in (QUICK, Exam(72, 1), Exam(72, 2), BUNDLED, Exam(150, 1), Exam(150, 2), LARGE):
        for gain in (0.05, 0.1):
            power = simulate(section, exam, (gain,)).share_accepted_within(1)
            print(f"a gain of {gain * 100:g} points accepted at the first try, {_named(exam)}: {power:.2f}")
            later = simulate(section, exam, (0.0,) * 5 + (gain,)).accepted[5].mean()
            print(f"a gain of {gain * 100:g} points accepted at the sixth try, {_named(exam)}: {later:.2f}")
        steady = simulate(section, exam, (0.03,) * 6)
        print(f"3 points an iteration accepted within 6, {_named(exam)}: {steady.share_accepted_within(6):.2f}")


def _print_other_rules() -> None:
    """Rules that go by scores alone, with a threshold that is what the base model truly scores."""
    for section in (
        GateSection(patience=0),
        GateSection(rule="strict"),
        GateSection(rule="ema"),
        GateSection(rule="threshold", threshold=BASE_MEAN),
    ):
        name = f"{section.rule}{'' if section.patience else ' without probation'}"
        null = simulate(section, BUNDLED, (0.0,) * IN_A_LOOP)
        print(f"{name}: loops with a false accept, no better in the mean: {null.share_with_false():.2f}")
        print(f"{name}: false accepts in a loop, no better in the mean: {null.false.sum(axis=0).mean():.2f}")
        steady = simulate(section, BUNDLED, (0.03,) * 6)
        print(f"{name}: 3 points an iteration accepted within 6: {steady.share_accepted_within(6):.2f}")


def _named(exam: Exam) -> str:
    return f"{exam.problems} problems x {exam.answers}"


if __name__ == "__main__":
    main()
