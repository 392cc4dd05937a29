"""`reasoning-gym:NAME[size=20,seed=1]`: exercises that a data set of reasoning-gym makes. An optional extra.

Making exercises is the package's own code and runs here; judging answers does not, see verifiers/gym.py.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rlm_core.errors import ProblemError, one_line
from rlm_core.files import digest
from rlm_core.problems import Problem, ReasoningGym
from rlm_core.sources import files
from rlm_core.sources.suite import Asking, Suite

_NAME = re.compile(r"reasoning-gym:(?P<dataset>\w+)(?:\[(?P<settings>(?:size|seed)=\d+(?:,(?:size|seed)=\d+)*)\])?")
_DEFAULTS = {"size": 50, "seed": 0}


def read(name: str) -> Suite:
    """Exercises of one data set, the same for the same size and seed; of a few data sets only within one process.

    Raises:
        ProblemError: the name is none, reasoning-gym is not installed, has no such data set or cannot make them.
    """
    dataset, settings = _asked(name)
    try:
        from reasoning_gym import create_dataset
    except ImportError as error:
        raise _missing(name) from error
    return _made(create_dataset, name, dataset, **settings)


@functools.lru_cache(maxsize=4)
def _made(create_dataset: Callable[..., Iterable[Any]], name: str, dataset: str, size: int, seed: int) -> Suite:
    """As `read`. Kept, as each stage reads its suites, and some data sets take half a second for an exercise."""
    try:
        made = list(create_dataset(dataset, size=size, seed=seed))
    except Exception as error:
        raise ProblemError(f"{name}: reasoning-gym cannot make it: {one_line(error, 200)}") from error
    entries = [(f"exercise {number}", entry) for number, entry in enumerate(made, 1)]
    return files.suite_of(name, entries, lambda entry: (_problem(dataset, entry), Asking()))


def state(name: str) -> str:
    """Digest of the name, which says all, and of the package's version.

    Raises:
        ProblemError: the name is none, or reasoning-gym is not installed.
    """
    _asked(name)
    try:
        return digest(version("reasoning-gym"), name)
    except PackageNotFoundError as error:
        raise _missing(name) from error


def _asked(name: str) -> tuple[str, dict[str, int]]:
    asked = _NAME.fullmatch(name)
    if asked is None:
        raise ProblemError(f"{name}: is not understood; write for instance reasoning-gym:leg_counting[size=20,seed=1]")
    given = (pair.split("=") for pair in (asked["settings"] or "").split(",") if pair)
    return asked["dataset"], {**_DEFAULTS, **{key: int(value) for key, value in given}}


def _missing(name: str) -> ProblemError:
    return ProblemError(f"{name}: reasoning-gym is not installed: pip install 'rlm-flows[reasoning-gym]'")


def _problem(dataset: str, entry: dict[str, Any]) -> Problem:
    plain = json.loads(json.dumps(entry, allow_nan=False))
    answer = plain.get("answer")
    return Problem(
        prompt=plain["question"],
        entry_point=dataset,
        verifier=ReasoningGym(dataset=dataset, entry=plain),
        reference=answer if isinstance(answer, str) else None,
    )
