"""How useful a problem is: the one measure by which problems are asked again, and answers to them kept and shown.

A group teaches only when its answers differ in what they are paid. With a pass rate p, G answers hold right and wrong
ones with the chance

    1 - p^G - (1 - p)^G

which, as the spread p (1 - p) of one answer does, falls with the distance of p from 1/2 and with nothing else. So the
spread is the measure, and is right for every G. Two things make p uncertain, and each has its part in the belief:

- *It was measured with few answers.* What is believed about p is a Beta distribution. It starts from the pass rate of
  the problem's like, worth `_PRIOR` answers.
- *The policy changes.* An iteration's answers count `_FADE` times as much in each further one.
"""

from collections.abc import Sequence

from rlm_core.problems import Problem
from rlm_core.records import Record

_PRIOR = 2.0
"""Answers that what is known of a problem's like is worth."""
_FADE = 0.8
UNKNOWN = 0.5
"""Pass rate of a problem of whose like nothing is known."""


class Try(Record):
    """How a problem's rollouts did in one iteration."""

    iteration: int
    rollouts: int
    passed: int

    @property
    def teaches(self) -> bool:
        """Whether some passed and some did not."""
        return 0 < self.passed < self.rollouts


class TriedProblem(Record):
    """A problem of earlier iterations, and how it went each time, oldest first."""

    problem: Problem
    tries: tuple[Try, ...]


def spread(rate: float) -> float:
    """Variance of one answer's being right or wrong, 0 to 1/4."""
    return rate * (1 - rate)


def belief(tries: Sequence[Try], iteration: int, rate: float = UNKNOWN) -> tuple[float, float]:
    """The parameters of the Beta distribution of a problem's pass rate in this iteration.

    Args:
        rate: of the problem's like, between 0 and 1 exclusive.
    """
    right, wrong = faded(tries, iteration)
    return _PRIOR * rate + right, _PRIOR * (1 - rate) + wrong


def usefulness(tries: Sequence[Try], iteration: int) -> float:
    """What a problem that was tried is worth in this iteration, 0 to 1/4.

    The spread that was expected when it was last measured, `a b / ((a + b) (a + b + 1))` with Beta(a, b), worth less by
    the iterations since. So all that is not tried loses worth at the same pace: which of two is worth more does not
    change until one of them is tried again.
    """
    measured = [each for each in tries if each.rollouts]
    if not measured:
        return 0.0
    last = measured[-1].iteration
    right, wrong = belief(measured, last + 1)
    expected = right * wrong / ((right + wrong) * (right + wrong + 1))
    return expected * _FADE ** (iteration - 1 - last)


def faded(tries: Sequence[Try], iteration: int) -> tuple[float, float]:
    """Right and wrong answers, each worth less by the iterations since."""
    worth = [_FADE ** (iteration - 1 - each.iteration) for each in tries]
    right = sum(each.passed * w for each, w in zip(tries, worth, strict=True))
    return right, sum(each.rollouts * w for each, w in zip(tries, worth, strict=True)) - right
