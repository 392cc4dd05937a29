"""Which known problems an iteration asks again: those that are solved sometimes.

A group teaches only when its answers differ in what they are paid. With a pass rate p, G answers hold right and wrong
ones with the chance

    1 - p^G - (1 - p)^G

which, as the spread p (1 - p) of one answer does, falls with the distance of p from 1/2 and with nothing else. So the
order is by that distance, and is right for every G. Three things make p uncertain, and each has its part in the rule:

- *It was measured with few answers.* What is believed about p is a Beta distribution, and the order goes by a draw from
  it (Thompson sampling: Thompson 1933; Chapelle and Li 2011). What is little known is tried often enough to be known,
  and what is known to be useful is used.
- *The problem was never asked.* Then the belief is that of its like (same source, same difficulty), worth `_PRIOR`
  answers: where middling problems were never solved, the other middling ones wait.
- *The policy changes.* An iteration's answers count `_FADE` times as much in each further one.

Besides, a group that was all right or all wrong lets its problem rest: one iteration, then three, then seven, each time
about twice as long, up to `_LONGEST_REST`. What is solved comes back to be seen whether it still is; what nobody solves
retires, and is tried again once in a while, as the policy may have become better.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rlm_core.problems import Problem
from rlm_core.seeds import derive_seed
from rlm_core.state.ledger import TriedProblem, Try

_PRIOR = 2.0
"""Answers that what is known of a problem's like is worth."""
_FADE = 0.8
_LONGEST_REST = 31

Level = tuple[str, str | None]


def most_useful_first(
    bank: Sequence[Problem], known: Sequence[TriedProblem], seed: int, iteration: int
) -> list[Problem]:
    """The bank's problems and those of earlier iterations, in the order in which an iteration is to use them.

    Those that rest come last, the first to come back first.

    Args:
        known: what was asked before this iteration, with how it went.
        seed: the project's.
    """
    tries = {each.problem.id: each.tries for each in known}
    problems = {problem.id: problem for problem in [*bank, *(each.problem for each in known)]}
    rates = _rates(known, iteration)

    def key(problem: Problem) -> tuple[int, float]:
        own = tries.get(problem.id, ())
        right, wrong = belief(own, rates.get(_level(problem), 0.5), iteration)
        draw = np.random.default_rng(derive_seed(seed, iteration, "choice", problem.id)).beta(right, wrong)
        return rests_for(own, iteration), abs(draw - 0.5)

    return sorted(problems.values(), key=key)


def belief(tries: Sequence[Try], rate: float, iteration: int) -> tuple[float, float]:
    """The parameters of the Beta distribution of a problem's pass rate in this iteration.

    Args:
        rate: of the problem's like, between 0 and 1 exclusive.
    """
    right, wrong = _faded(tries, iteration)
    return _PRIOR * rate + right, _PRIOR * (1 - rate) + wrong


def rests_for(tries: Sequence[Try], iteration: int) -> int:
    """Iterations that a problem still rests from this one on; 0 when it may be asked now.

    Args:
        tries: oldest first.
    """
    measured = [each for each in tries if each.rollouts]
    in_a_row = next((n for n, each in enumerate(reversed(measured)) if each.teaches), len(measured))
    if in_a_row == 0:
        return 0
    rest = min((1 << in_a_row) - 1, _LONGEST_REST)
    return max(0, measured[-1].iteration + rest + 1 - iteration)


def _rates(known: Sequence[TriedProblem], iteration: int) -> Mapping[Level, float]:
    """Pass rate of each level, as if one right and one wrong answer had been seen beside those that were."""
    sums: dict[Level, list[float]] = defaultdict(lambda: [1.0, 1.0])
    for each in known:
        right, wrong = _faded(each.tries, iteration)
        sums[_level(each.problem)][0] += right
        sums[_level(each.problem)][1] += wrong
    return {level: right / (right + wrong) for level, (right, wrong) in sums.items()}


def _faded(tries: Sequence[Try], iteration: int) -> tuple[float, float]:
    """Right and wrong answers, each worth less by the iterations since."""
    worth = [_FADE ** (iteration - 1 - each.iteration) for each in tries]
    right = sum(each.passed * w for each, w in zip(tries, worth, strict=True))
    return right, sum(each.rollouts * w for each, w in zip(tries, worth, strict=True)) - right


def _level(problem: Problem) -> Level:
    return problem.provenance.source, problem.difficulty
