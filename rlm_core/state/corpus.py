"""The corpus: answers that passed, of bounded number, none twice. The most useful stay, to be rehearsed and shown."""

from collections.abc import Iterable

from rlm_core.problems import Problem
from rlm_core.records import Record, Share


class CorpusAnswer(Record):
    """An earlier answer that passed."""

    problem: Problem
    rollout_id: str
    iteration: int
    text: str
    pass_rate: Share
    """Of the problem's rollouts, when it was last tried."""
    usefulness: float
    """Of the problem, in the iteration that asked for the corpus; see `usefulness.py`."""


def most_useful(answers: Iterable[CorpusAnswer], size: int | None = None) -> list[CorpusAnswer]:
    """At most so many answers, the most useful first, one of each problem.

    Of equally useful ones the harder is first, and of two answers to a problem the newer, which is the likelier to be
    what the policy would say now. Problems that ask in the same words for the same function are one.

    What is chosen depends neither on the order of the answers nor on how they came in: to choose from all of them, or
    from those chosen before and the new ones, is the same.
    """
    kept: list[CorpusAnswer] = []
    known: set[str | tuple[str, str]] = set()
    for answer in sorted(answers, key=_rank):
        names = set(answer.problem.identities)
        if not names & known:
            known |= names
            kept.append(answer)
    return kept[:size]


def _rank(answer: CorpusAnswer) -> tuple[float, float, int, str, str]:
    return -answer.usefulness, answer.pass_rate, -answer.iteration, answer.problem.id, answer.rollout_id
