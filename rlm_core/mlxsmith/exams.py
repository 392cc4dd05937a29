"""mlxsmith's exams: its YAML is read here as it is, so a copy will do."""

import tempfile
from pathlib import Path
from typing import Literal

import yaml

from rlm_core.errors import ProblemError, one_line
from rlm_core.files import read_given_text
from rlm_core.sources import read_suite
from rlm_core.yaml_text import parse_yaml

Role = Literal["benchmark", "holdout"]


def exam_of(root: Path, name: str | None, role: Role, benchmark: str | None) -> tuple[str | None, str]:
    """An exam as a file of ours.

    Args:
        root: what `name`, their setting, is relative to.
        benchmark: their setting for the other exam.

    Returns:
        Its text, and what had to be changed in it; or None, and why the bank's suite takes its place.
    """
    fallback = f"the bank's {role} is taken"
    if not name:
        return None, f"{fallback}: there is always one"
    if role == "holdout" and name == benchmark:
        return None, f"{fallback}: the two must differ"
    path = root / name
    if not path.is_file():
        return None, f"{fallback}: {path} is not there, which left the exam out without a word there"
    try:
        return _readable(path)
    except ProblemError as error:
        return None, f"{fallback}: {error}"


def _readable(path: Path) -> tuple[str, str]:
    """The exam as it can be read here, and what had to be taken out for that.

    Raises:
        ProblemError: it cannot.
    """
    text, but = read_given_text(path, str(path), ProblemError), ""
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise ProblemError(f"{path}: is not YAML: {one_line(error)}") from error
    if isinstance(content, dict) and content.pop("config", None):
        text, but = yaml.safe_dump(content, sort_keys=False, allow_unicode=True), "without its section config"
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, path.name)
        copy.write_text(text, encoding="utf-8")
        try:
            read_suite(str(copy))
        except ProblemError as error:
            raise ProblemError(str(error).replace(str(copy), str(path))) from error
    return text, but
