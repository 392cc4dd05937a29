"""Our own format: a problem as its record has it, `{"prompt": …, "entry_point": …, "cases": […]}`."""

import json
from typing import Any

from rlm_core.problems import Problem
from rlm_core.sources.suite import Asking

FIELDS = frozenset({"prompt"})
_FOUND_OUT = {"test_ids": (), "test_questions": (), "trivial_share": None}
"""What is never taken from a file."""


def problem(entry: Any) -> tuple[Problem, Asking]:
    """The problem that an entry is.

    Raises:
        ValueError: it is none.
    """
    # By way of JSON, so that only JSON's types come through whatever the file's format was.
    read = Problem.model_validate_json(json.dumps(entry, allow_nan=False))
    return read.model_copy(update=_FOUND_OUT), Asking()
