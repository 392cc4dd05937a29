"""Composed problems as a source: primitives put together, with a solution that was run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rlm_core.judging import open_configured
from rlm_core.problems import Problem
from rlm_core.proportions import shares
from rlm_core.proposers.proposer import Context
from rlm_core.records import Rejection
from rlm_core.sources import procedural


def propose(context: Context, count: int) -> tuple[list[Problem], list[Rejection]]:
    """The iteration's stretch of the project's walk; what the walk has no more of is a rejection."""
    difficulties = context.section.difficulty
    with open_configured(context.verify) as sandbox:
        composed = procedural.problems(count, context.project_seed, context.iteration, difficulties, sandbox)
    return composed, used_up(composed, count, difficulties)


def used_up(composed: Sequence[Problem], asked: int, difficulties: Mapping[int, float]) -> list[Rejection]:
    """For each difficulty that has not as many composed problems left as were asked for, that this is so."""
    wanted = shares(asked, difficulties)
    found = Counter(problem.difficulty for problem in composed)
    return [
        Rejection(
            stage="generate",
            rule="used_up",
            reason=f"{found[str(difficulty)]} of {count} composed problems of difficulty {difficulty}: all others were "
            "given before; other difficulties can be asked for in generate.difficulty",
            value=found[str(difficulty)],
            limit=count,
            proposal="",
        )
        for difficulty, count in wanted.items()
        if found[str(difficulty)] < count
    ]
