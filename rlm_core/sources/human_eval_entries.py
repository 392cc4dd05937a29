"""HumanEval's format: the beginning of a program that ends in a function without a body, and a test of the whole.

Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374. A model is shown the beginning
and writes the whole function. Its code is run after the beginning, so that it has the imports and functions that it was
shown. The data set's own `check` judges it and is given the answer's function alone: other names that a test uses are
those of the data set's solution.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, Field

from rlm_core.problems import Identifier, Problem, Pytest
from rlm_core.sources.suite import Asking

FIELDS = frozenset({"prompt", "entry_point", "canonical_solution", "test"})

_TESTS = """\
{reference}

{test}


def test_{entry_point}():
    from main import {entry_point} as candidate

    check(candidate)
"""


class HumanEvalEntry(BaseModel):
    """What is read of an entry."""

    prompt: Annotated[str, Field(min_length=1)]
    entry_point: Identifier
    canonical_solution: str
    test: Annotated[str, Field(min_length=1)]


def problem(entry: Any) -> tuple[Problem, Asking]:
    """The problem that an entry is.

    Raises:
        ValueError: it is none.
    """
    read = HumanEvalEntry.model_validate_json(json.dumps(entry))
    reference = read.prompt + read.canonical_solution
    tests = _TESTS.format(reference=reference, test=read.test, entry_point=read.entry_point)
    return to_complete(read.prompt, read.entry_point, reference, tests), Asking()


def to_complete(beginning: str, entry_point: str, reference: str, tests: str) -> Problem:
    """A problem that asks for a program to be completed of which the beginning is shown."""
    return Problem(
        prompt=f"```python\n{beginning.strip()}\n```\nComplete this function and write it out whole.",
        entry_point=entry_point,
        verifier=Pytest(tests=tests),
        reference=reference,
        preamble=beginning,
    )
