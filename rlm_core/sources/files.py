"""Files of problems: YAML, JSON or JSON Lines, gzipped or not. What is in the first entry tells which format it is."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rlm_core.errors import ProblemError, one_line
from rlm_core.files import first_reason, read_given_text, sha256_of
from rlm_core.problems import Problem
from rlm_core.sources import evalplus, exam_yaml, human_eval_entries, mbpp, problem_files
from rlm_core.sources.suite import Asking, Suite
from rlm_core.yaml_text import parse_yaml


@dataclass(frozen=True)
class Format:
    """One format of the entries of a file."""

    fields: frozenset[str]
    """An entry of this format has all of them."""
    problem: Callable[[Any], tuple[Problem, Asking]]
    """From an entry to a problem. Raises ValueError, whose message begins with the field; ValidationError is one."""


FORMATS = (
    Format(evalplus.FIELDS, evalplus.problem),
    Format(human_eval_entries.FIELDS, human_eval_entries.problem),
    Format(mbpp.FIELDS, mbpp.problem),
    Format(problem_files.FIELDS, problem_files.problem),
)
"""The first that fits; the last fits everything. An exam in YAML is told by its key `tasks`."""

_EXAM = Format(exam_yaml.FIELDS, exam_yaml.problem)

_Entries = list[tuple[str, Any]]
"""A file's raw entries, each with its place in the file."""


def read(name: str) -> Suite:
    """The problems of the file with this path.

    Raises:
        ProblemError: it cannot be read, or one of its entries is no problem; with file, place and field.
    """
    return read_file(name, Path(name).expanduser())


def state(name: str) -> str:
    """Digest of the file, as it is now.

    Raises:
        ProblemError: it cannot be read.
    """
    try:
        return sha256_of(Path(name).expanduser())
    except OSError as error:
        raise ProblemError(f"{name}: cannot be read: {error.strerror}") from error


def read_file(name: str, path: Path) -> Suite:
    """As `read`, of a file that the user knows by another name; with the same errors."""
    content = _content(name, path)
    if isinstance(content, dict) and exam_yaml.TASKS in content:
        format_, entries = _EXAM, _tasks(name, content)
    else:
        entries = content if _has_lines(path) else _numbered("problem", content)
        format_ = _format_of(entries)
    return suite_of(name, entries, format_.problem)


def suite_of(name: str, entries: _Entries, to_problem: Callable[[Any], tuple[Problem, Asking]]) -> Suite:
    """The suite that these entries make.

    Raises:
        ProblemError: one of them is no problem; with its place and field.
    """
    problems, askings = [], {}
    for place, entry in entries:
        try:
            problem, asking = to_problem(entry)
        except (ValidationError, TypeError, ValueError, RecursionError) as error:
            raise ProblemError(f"{name}: {place}: {one_line(first_reason(error))}") from error
        problems.append(problem)
        if asking != Asking():
            askings[problem.id] = asking
    return Suite(tuple(problems), askings)


def _format_of(entries: _Entries) -> Format:
    first = entries[0][1] if entries else None
    keys = first.keys() if isinstance(first, dict) else set()
    return next(each for each in FORMATS if each.fields <= keys or each is FORMATS[-1])


def _tasks(name: str, content: dict[str, Any]) -> _Entries:
    """The entries of an exam in YAML.

    Raises:
        ProblemError: it says more than is looked at here.
    """
    if content.get("config"):
        raise ProblemError(f"{name}: config: settings do not belong to an exam; move them to the file for --config")
    if not isinstance(content[exam_yaml.TASKS], list | None):
        raise ProblemError(f"{name}: tasks: must be a list")
    return _numbered("task", content[exam_yaml.TASKS])


def _numbered(word: str, content: Any) -> _Entries:
    entries = [] if content is None else content if isinstance(content, list) else [content]
    return [(f"{word} {number}", entry) for number, entry in enumerate(entries, 1)]


def _suffixes(path: Path) -> list[str]:
    return [suffix.lower() for suffix in path.suffixes] or [""]


def _has_lines(path: Path) -> bool:
    return not {".jsonl", ".ndjson"}.isdisjoint(_suffixes(path)[-2:])


def _content(name: str, path: Path) -> Any:
    """What is in the file, parsed.

    Raises:
        ProblemError: it cannot be read or is malformed.
    """
    text = _text(name, path)
    try:
        if _has_lines(path):
            return list(_json_lines(name, text))
        return json.loads(text) if ".json" in _suffixes(path)[-2:] else parse_yaml(text, _loader())
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{name}: is malformed: {one_line(error)}") from error


def _text(name: str, path: Path) -> str:
    return _decoded(name, path).removeprefix("\ufeff")  # the mark with which some editors begin a file


def _decoded(name: str, path: Path) -> str:
    if _suffixes(path)[-1] != ".gz":
        return read_given_text(path, name, ProblemError)
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise ProblemError(f"{name}: is not UTF-8 text") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ProblemError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _json_lines(name: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines(): it also cuts at characters that JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ProblemError(f"{name}: line {number}: is not JSON: {error}") from error


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
