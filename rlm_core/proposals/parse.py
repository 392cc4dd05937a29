"""From what the model answered to proposals. What is not usable becomes a rejection with a reason."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import json_repair
from pydantic import ValidationError

from rlm_core.files import first_reason
from rlm_core.problems import Problem, Provenance
from rlm_core.records import Rejection
from rlm_core.request import request

SHOWN_CHARS = 2_000
"""Longest part of a proposal that a rejection keeps."""


def collect(
    texts: Sequence[str], stage: Literal["generate", "mutate"], origins: Sequence[Provenance], domains: Sequence[str]
) -> tuple[list[Problem], list[Rejection]]:
    """Problems and rejections from the model's answers."""
    problems, rejections = [], []
    for text, origin, domain in zip(texts, origins, domains, strict=True):
        try:
            problems.append(parse_proposal(text, origin, domain))
        except (ValueError, RecursionError) as error:
            rejections.append(
                Rejection(
                    stage=stage,
                    rule="well_formed",
                    reason=first_reason(error),
                    value=0,  # usable problems in it
                    limit=1,
                    proposal=text[:SHOWN_CHARS],
                )
            )
    return problems, rejections


def parse_proposal(text: str, origin: Provenance, domain: str) -> Problem:
    """A problem from a model's answer: its first JSON object, repaired where that is possible.

    Raises:
        ValueError: the answer holds no JSON object, or not one that describes a problem.
    """
    start = text.find("{")
    if start < 0:
        raise ValueError("no JSON object in the answer")
    content = json_repair.loads(text[start:])
    if isinstance(content, list):
        content = next((item for item in content if isinstance(item, dict)), None)
    if not isinstance(content, dict):
        raise ValueError("no JSON object in the answer")
    return _as_problem(content, origin, domain)


def _as_problem(content: dict[str, Any], origin: Provenance, domain: str) -> Problem:
    signature, description = content.get("signature"), content.get("description")
    if not isinstance(signature, str) or not isinstance(description, str) or not description.strip():
        raise ValueError("signature and description must be texts")
    signature = signature.strip().removeprefix("def ").removesuffix(":").strip()
    tests = content.get("tests")
    if not isinstance(tests, list):
        raise ValueError("tests must be a list")
    solution = content.get("solution")
    fields = {
        "prompt": request(signature.partition(" ->")[0], description.strip()),
        "entry_point": signature.partition("(")[0].strip(),
        "signature": signature,
        "domain": domain,
        "cases": [_as_case(test) for test in tests],
        "reference": solution if isinstance(solution, str) and solution.strip() else None,
        "provenance": origin.model_dump(),
    }
    try:
        return Problem.model_validate_json(json.dumps(fields, allow_nan=False))
    except ValidationError as error:
        raise ValueError(first_reason(error)) from error


def _as_case(test: Any) -> dict[str, Any]:
    if not isinstance(test, dict) or "input" not in test or "expected" not in test:
        raise ValueError("each test needs input and expected")
    arguments = test["input"]
    return {"input": arguments if isinstance(arguments, list) else [arguments], "expected": test["expected"]}
