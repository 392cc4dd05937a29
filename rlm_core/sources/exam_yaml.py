"""Exams in YAML: a mapping with `tasks`, each with prompt, tests or a verifier, and how it is to be asked.

tasks:
  - id: add
    prompt: Write a Python function `add(a, b)` that returns the sum.
    tests: |                            # pytest; they import the answer from `main`
      from main import add
      def test_add(): assert add(1, 2) == 3
    k: 4
    max_new_tokens: 128
    temperature: 0.2
    seed: 0
  - id: yes
    prompt: Say yes.
    verifier: verifiers/regex.py        # known by its file's name, which is not run
    verifier_kwargs: {pattern: "(?i)yes"}
"""

import json
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from rlm_core.problems import Problem
from rlm_core.sources.suite import Asking

TASKS = "tasks"
FIELDS = frozenset({"prompt"})

_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x", re.ASCII: "a"}


class TaskEntry(BaseModel):
    """One entry of `tasks`."""

    model_config = ConfigDict(extra="forbid")

    id: str | int = ""
    prompt: str
    tests: str = ""
    verifier: str | dict[str, Any] | None = None
    """Path of a verifier of the loop that such exams were written for, or one of ours as problem files have it."""
    verifier_kwargs: dict[str, Any] = {}
    reference: str | None = None
    k: int | None = None
    max_tokens: int | None = Field(None, validation_alias=AliasChoices("max_tokens", "max_new_tokens"))
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    timeout_s: float | None = None
    """Not used: an answer may take what `verify.limits` says."""


def problem(entry: Any) -> tuple[Problem, Asking]:
    """The problem that an entry is, and how it is to be asked.

    Raises:
        ValueError: it is none, or its verifier is not known here.
    """
    read = TaskEntry.model_validate_json(json.dumps(entry, allow_nan=False))
    content = {"prompt": read.prompt, "verifier": _verifier_of(read), "reference": read.reference}
    name = re.sub(r"\W", "_", str(read.id))
    if name.isidentifier():
        content["entry_point"] = name
    asking = Asking(
        k=read.k, max_tokens=read.max_tokens, temperature=read.temperature, top_p=read.top_p, seed=read.seed
    )
    return Problem.model_validate_json(json.dumps(content)), asking


def _verifier_of(entry: TaskEntry) -> dict[str, Any]:
    if isinstance(entry.verifier, dict):
        return entry.verifier
    if entry.verifier is None:
        return _tested(entry, {})
    return _verifier(entry, entry.verifier, entry.verifier_kwargs)


def _verifier(entry: TaskEntry, path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One of our verifiers for one of that loop's, which is known by its file's name."""
    name = PurePosixPath(path).stem
    if name not in _VERIFIERS:
        known = ", ".join(sorted(_VERIFIERS))
        raise ValueError(f"verifier: {path!r} is not known; there are {known}, or one of ours: {{kind: function, …}}")
    return _VERIFIERS[name](entry, arguments)


def _tested(entry: TaskEntry, _arguments: dict[str, Any]) -> dict[str, Any]:
    if not entry.tests.strip():
        raise ValueError("tests: are needed, or a verifier in their place")
    return {"kind": "pytest", "tests": entry.tests}


def _regex(_entry: TaskEntry, arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(pattern := arguments.get("pattern"), str):
        raise ValueError("verifier_kwargs.pattern: a regular expression is needed")
    flags = arguments.get("flags", 0)
    letters = "".join(letter for flag, letter in _FLAGS.items() if flags & flag)
    return {"kind": "regex", "pattern": f"(?{letters}){pattern}" if letters else pattern}


def _schema(_entry: TaskEntry, arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(schema := arguments.get("schema"), dict):
        raise ValueError("verifier_kwargs.schema: must be the schema itself, not the name of a file")
    return {"kind": "json_schema", "json_schema": schema}


def _composed(entry: TaskEntry, arguments: dict[str, Any]) -> dict[str, Any]:
    """Several at once. A weighted mean passed there as soon as one of its parts did, so it is an `any` here."""
    own = {"verifiers", "mode", "weights", "per_verifier_kwargs"}
    for_all = {name: value for name, value in arguments.items() if name not in own}
    if not isinstance(for_one := arguments.get("per_verifier_kwargs") or {}, dict):
        raise ValueError(
            "verifier_kwargs.per_verifier_kwargs: must be a mapping from a verifier's path to its arguments"
        )
    parts = []
    for part in arguments.get("verifiers") or []:
        path, extra = (part.get("path", ""), part.get("kwargs") or {}) if isinstance(part, dict) else (part, {})
        parts.append(_verifier(entry, str(path), {**for_all, **for_one.get(path, {}), **extra}))
    mode = str(arguments.get("mode") or "all")
    if mode not in ("all", "any", "weighted") or not parts:
        raise ValueError("verifier_kwargs: compose needs verifiers, and the mode all, any or weighted")
    return {"kind": "all" if mode == "all" else "any", "of": parts}


_VERIFIERS: dict[str, Callable[[TaskEntry, dict[str, Any]], dict[str, Any]]] = {
    "regex": _regex,
    "jsonschema": _schema,
    "pytest_verifier": _tested,
    "docker_verifier": _tested,
    "compose": _composed,
}
