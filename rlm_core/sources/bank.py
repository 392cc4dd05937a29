"""The problems that ship with the package: `bank:train`, `bank:benchmark`, `bank:holdout`.

A part can be cut down to some levels of difficulty: `bank:train[starter,easy]`.
"""

import re
from importlib import resources
from pathlib import Path

from rlm_core.errors import ProblemError
from rlm_core.files import sha256_of
from rlm_core.sources import files
from rlm_core.sources.suite import Suite

LEVELS = ("starter", "easy", "middling")
"""Difficulty of the bank's problems: one line on page one of a tutorial; a few lines; an idea and a loop."""

_NAME = re.compile(r"bank:(?P<part>\w+)(?:\[(?P<levels>[\w,]+)\])?")


def read(name: str) -> Suite:
    """A part of the bank, or those of its problems that have the levels that are named.

    Raises:
        ProblemError: there is no such part or level.
    """
    path, levels = _path_of(name)
    suite = files.read_file(name, path)
    return Suite(tuple(problem for problem in suite.problems if not levels or problem.difficulty in levels))


def state(name: str) -> str:
    """Digest of the part's file.

    Raises:
        ProblemError: there is no such part or level.
    """
    return sha256_of(_path_of(name)[0])


def _path_of(name: str) -> tuple[Path, frozenset[str]]:
    """Where the problems are, and which levels of difficulty are wanted; none named means all."""
    bank = Path(str(resources.files("rlm_core") / "bank"))
    asked = _NAME.fullmatch(name)
    path = bank / f"{asked['part']}.yaml" if asked else bank
    if asked is None or not path.is_file():
        parts = ", ".join(sorted(f"bank:{file.stem}" for file in bank.glob("*.yaml")))
        raise ProblemError(
            f"{name}: no such part of the bank; there are {parts}, or with levels: bank:train[starter,easy]"
        )
    levels = frozenset((asked["levels"] or "").split(",")) - {""}
    if unknown := sorted(levels - set(LEVELS)):
        raise ProblemError(f"{name}: no level {', '.join(unknown)}; there are {', '.join(LEVELS)}")
    return path, levels
