"""Which known problems an iteration asks again: those that are solved sometimes, or each of the bank in turn.

The order is by usefulness (`usefulness.py`), with one thing more: what is little known has to be tried to be known. So
it goes by the spread of a draw from what is believed about a problem's pass rate (Thompson sampling: Thompson 1933;
Chapelle and Li 2011). A problem that was never asked is believed to be as its like (same source, same difficulty):
where middling problems were never solved, the other middling ones wait.

Besides, a group that was all right or all wrong lets its problem rest: one iteration, then three, then seven, each time
about twice as long, up to `_LONGEST_REST`. What is solved comes back to be seen whether it still is; what nobody solves
retires, and is tried again once in a while, as the policy may have become better.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rlm_core.problems import Problem
from rlm_core.seeds import derive_seed
from rlm_core.usefulness import UNKNOWN, TriedProblem, Try, belief, faded, spread

_LONGEST_REST = 31

_OF_A_FILE = ("bank", "file")
"""Sources of problems that people keep in a file: what is no longer there, or there in other words, was withdrawn."""

Origin = tuple[str, str | None]
"""A problem's source, and how hard it is said to be there."""


def most_useful_first(
    bank: Sequence[Problem], known: Sequence[TriedProblem], seed: int, iteration: int
) -> list[Problem]:
    """The bank's problems and those of earlier iterations, in the order in which an iteration is to use them.

    The bank is as it is now: a problem of a bank that is not in this one does not come back. Those that rest come last,
    the first to come back first.

    Args:
        known: what was asked before this iteration, with how it went.
        seed: the project's.
    """
    tries = {each.problem.id: each.tries for each in known}
    problems = {problem.id: problem for problem in bank}
    known = [
        each.model_copy(update={"problem": problems.get(each.problem.id, each.problem)})
        for each in known
        if each.problem.id in problems or each.problem.provenance.source not in _OF_A_FILE
    ]
    problems |= {each.problem.id: each.problem for each in known}
    rates = _rates(known, iteration)

    def key(problem: Problem) -> tuple[int, float]:
        own = tries.get(problem.id, ())
        right, wrong = belief(own, iteration, rates.get(_origin(problem), UNKNOWN))
        draw = np.random.default_rng(derive_seed(seed, iteration, "choice", problem.id)).beta(right, wrong)
        return rests_for(own, iteration), -spread(draw)

    return sorted(problems.values(), key=key)


def longest_unasked_first(bank: Sequence[Problem], known: Sequence[TriedProblem], seed: int) -> list[Problem]:
    """The bank's problems, first those that were asked longest ago or never, and of these in an order of the seed.

    So every problem comes up before one comes up again, however many an iteration takes and whichever are refused.

    Args:
        known: what was asked before this iteration, whatever came of it.
        seed: the project's.
    """
    asked = {each.problem.id: each.tries[-1].iteration for each in known}
    order = np.random.default_rng(derive_seed(seed, "bank")).permutation(len(bank))
    return sorted((bank[i] for i in order), key=lambda problem: asked.get(problem.id, 0))


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


def _rates(known: Sequence[TriedProblem], iteration: int) -> Mapping[Origin, float]:
    """Pass rate of each origin, as if one right and one wrong answer had been seen beside those that were."""
    sums: dict[Origin, list[float]] = defaultdict(lambda: [1.0, 1.0])
    for each in known:
        right, wrong = faded(each.tries, iteration)
        sums[_origin(each.problem)][0] += right
        sums[_origin(each.problem)][1] += wrong
    return {origin: right / (right + wrong) for origin, (right, wrong) in sums.items()}


def _origin(problem: Problem) -> Origin:
    return problem.provenance.source, problem.difficulty
