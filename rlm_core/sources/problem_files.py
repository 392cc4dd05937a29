"""Problem files: YAML or JSON lists and JSON Lines, for training, for exams and for judging one answer by hand.

A name is a path, or `bank:train`, `bank:benchmark`, `bank:holdout` for the problems that ship with the package. A part
of the bank can be cut down to some levels of difficulty: `bank:train[starter,easy]`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from rlm_core.errors import ProblemError, one_line
from rlm_core.files import first_reason, read_given_text, sha256_of
from rlm_core.problems import Problem
from rlm_core.seeds import derive_seed

BANK_PREFIX = "bank:"
LEVELS = ("starter", "easy", "middling")
"""Difficulty of the bank's problems: one line on page one of a tutorial; a few lines; an idea and a loop."""

_BANK_NAME = re.compile(r"bank:(?P<part>\w+)(?:\[(?P<levels>[\w,]+)\])?")


def read_problems(name: str) -> list[Problem]:
    """The problems of a file or of a part of the bank, in the order of the file.

    Raises:
        ProblemError: the file is missing, empty, malformed, or holds a problem twice.
    """
    path, levels = _path_of(name)
    problems = [_problem(name, place, content) for place, content in _entries(name, path)]
    if levels:
        problems = [problem for problem in problems if problem.difficulty in levels]
    if not problems:
        raise ProblemError(f"{name}: holds no problems")
    seen: dict[str, Problem] = {}
    for problem in problems:
        if problem.id in seen:
            raise ProblemError(f"{name}: {problem.entry_point} is there twice")
        seen[problem.id] = problem
    return problems


def file_digest(name: str) -> str:
    """Digest of a problem file as it is now.

    Raises:
        ProblemError: there is no such file.
    """
    path, _ = _path_of(name)
    try:
        return sha256_of(path)
    except OSError as error:
        raise ProblemError(f"{name}: cannot be read: {error.strerror}") from error


def bank_order(problems: Sequence[Problem], seed: int, iteration: int, wanted: int) -> list[Problem]:
    """The bank in the order in which an iteration uses it.

    The bank is shuffled once per project and walked through in steps of `wanted`, so that every problem comes up before
    one comes up again.
    """
    shuffled = [problems[i] for i in np.random.default_rng(derive_seed(seed, "bank")).permutation(len(problems))]
    start = (iteration - 1) * wanted % len(shuffled)
    return shuffled[start:] + shuffled[:start]


def _path_of(name: str) -> tuple[Path, frozenset[str]]:
    """Where the problems are, and which levels of difficulty are wanted; none named means all."""
    if not name.startswith(BANK_PREFIX):
        return Path(name).expanduser(), frozenset()
    bank = Path(str(resources.files("rlm_core") / "bank"))
    asked = _BANK_NAME.fullmatch(name)
    path = bank / f"{asked['part']}.yaml" if asked else bank
    if asked is None or not path.is_file():
        parts = ", ".join(sorted(BANK_PREFIX + file.stem for file in bank.glob("*.yaml")))
        raise ProblemError(
            f"{name}: no such part of the bank; there are {parts}, or with levels: bank:train[starter,easy]"
        )
    levels = frozenset((asked["levels"] or "").split(",")) - {""}
    if unknown := sorted(levels - set(LEVELS)):
        raise ProblemError(f"{name}: no level {', '.join(unknown)}; there are {', '.join(LEVELS)}")
    return path, levels


def _entries(name: str, path: Path) -> list[tuple[str, Any]]:
    """The file's raw entries, each with its place in the file."""
    text = read_given_text(path, name, ProblemError)
    try:
        if path.suffix == ".jsonl":
            return list(_json_lines(name, text))
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_loader())
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ProblemError(f"{name}: is malformed: {one_line(error)}") from error
    if content is None:
        return []
    entries = content if isinstance(content, list) else [content]
    return [(f"problem {number}", entry) for number, entry in enumerate(entries, 1)]


def _json_lines(name: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines(): it also cuts at characters that JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ProblemError(f"{name}: line {number}: is not JSON: {error}") from error


def _problem(name: str, place: str, content: Any) -> Problem:
    try:
        # By way of JSON, so that only JSON's types come through whatever the file's format was.
        problem = Problem.model_validate_json(json.dumps(content, allow_nan=False))
    except (ValidationError, TypeError, ValueError) as error:
        raise ProblemError(f"{name}: {place}: {first_reason(error)}") from error
    found_out = {"test_ids": (), "test_questions": (), "trivial_share": None}
    return problem.model_copy(update=found_out)  # never taken from a file


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
