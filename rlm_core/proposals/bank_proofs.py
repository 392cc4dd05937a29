"""Problems of a bank of the user's own, each proved once before it is trained on, and what came of it."""

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlm_core.config import FilterSection
from rlm_core.files import digest, write_json
from rlm_core.problems import Cases, Problem
from rlm_core.proposals.proof import Prover
from rlm_core.proposals.rules import broken_rule
from rlm_core.records import Refusal

_VERSION = 1
"""Raised when another proof would come to another result."""
_RULES = ("min_cases", "consistent_cases", "distinct_outputs", "trivial")
"""Those that say whether cases can judge answers; how long a problem is, and what it is about, people decide."""
_KEPT = TypeAdapter(dict[str, Refusal | None])

Unproved = Callable[[Problem], Refusal | None]
"""Why a problem of the bank is not trained on, or None."""


def trusted(_: Problem) -> Refusal | None:
    """Of a bank that is taken as it is."""
    return None


class BankProofs:
    """What is proved of problems, and kept in a file: only what is new, or was changed, is run.

    The file is no more than a memory. When it is gone or damaged, all is proved anew.
    """

    def __init__(self, path: Path, prover: Prover, section: FilterSection) -> None:
        self._path = path
        self._prover = prover
        self._section = section
        self._known = _read(path)

    def unproved(self, problem: Problem) -> Refusal | None:
        """Why a problem is not proved, or None; what is not judged by cases alone has no proof to pass here."""
        if not isinstance(problem.verifier, Cases):
            return None
        key = digest(_VERSION, problem.id, problem.reference, self._section.dump(), self._prover.limits.model_dump())
        if key in self._known:
            return self._known[key]
        refused = broken_rule(problem, self._section, _RULES) or self._prover.refusal(problem, self._section)
        if refused is None or refused.rule != "infrastructure":
            self._known[key] = refused
            write_json(self._path, {name: each and each.model_dump() for name, each in self._known.items()})
        return refused


def _read(path: Path) -> dict[str, Refusal | None]:
    try:
        return _KEPT.validate_python(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError, RecursionError):
        return {}
