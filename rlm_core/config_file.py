"""A config from its file, which is read strictly.

An unknown key, a wrong type or a value out of range is one readable line that names the file, the key, the value and
what is allowed.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlm_core.config import Config
from rlm_core.errors import CREDENTIALS, ConfigError, one_line
from rlm_core.files import read_given_text
from rlm_core.yaml_text import parse_yaml


def load_config(path: str | Path) -> Config:
    """Read a config file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or a setting is not allowed.
    """
    return parse_config(_read(Path(path)), source=str(path))


def load_sections(path: Path, names: Iterable[str]) -> Config:
    """Read some sections of a config file, which may be an earlier version's; the others are as they are by default.

    Raises:
        ConfigError: as `load_config`, of these sections.
    """
    content = _read(path)
    return parse_config({name: content[name] for name in names if name in content}, source=str(path))


def _read(path: Path) -> dict[str, Any]:
    text = read_given_text(path, str(path), ConfigError)
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{path}: is not YAML: {one_line(error)}") from error
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold sections with settings, not a {type(content).__name__}")
    return content


def parse_config(content: dict[str, Any], source: str = "config") -> Config:
    """Check settings that were read from YAML or came as JSON.

    Raises:
        ConfigError: a setting is not allowed; `source` is named in the message.
    """
    try:
        return Config.parse(content)
    except ValidationError as error:
        raise ConfigError(f"{source}: {one_line(_describe(error))}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: holds something that is no setting: {one_line(error)}") from error


def _describe(error: ValidationError) -> str:
    """The first complaint as `key = value: what is allowed`, with the number of further ones."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"]).removesuffix(".[key]")
    if first["type"] == "extra_forbidden":
        text = f"{key}: unknown setting; {_allowed_keys(first['loc'])}"
    elif key:
        text = f"{key} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
    else:
        text = first["msg"].removeprefix("Value error, ")
    text = CREDENTIALS.sub("…@", text)
    return text + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")


_RENAMED = {"train.lora": "adapter", "generate.from_model": "sources", "generate.from_procedural": "sources"}
"""Settings that had another name, which is too different to be found by spelling."""


def _allowed_keys(location: tuple[str | int, ...]) -> str:
    section: Any = Config
    for part in location[:-1]:
        section = section.model_fields[part].annotation
    allowed = list(section.model_fields)
    former = _RENAMED.get(".".join(map(str, location)))
    close = [former] if former else difflib.get_close_matches(str(location[-1]), allowed, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed: {', '.join(allowed)}"
