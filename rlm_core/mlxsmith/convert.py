"""From mlxsmith's config and exams to a project of this loop, with a word on what became of each key."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlm_core.config import Config
from rlm_core.config_file import parse_config
from rlm_core.errors import ConfigError, one_line
from rlm_core.files import read_given_text
from rlm_core.mlxsmith.exams import Role, exam_of
from rlm_core.mlxsmith.keys import KEYS
from rlm_core.pages.markdown import table
from rlm_core.starter.config_text import config_text
from rlm_core.starter.new_project import CONFIG_NAME, starter_files
from rlm_core.yaml_text import parse_yaml

Word = Literal["kept", "changed", "dropped"]

REPORT_NAME = "migrated.md"
_EXAMS: dict[str, Role] = {"rlm.benchmark_suite": "benchmark", "rlm.holdout_suite": "holdout"}


@dataclass(frozen=True)
class Fate:
    """What became of a key."""

    key: str
    value: Any
    given: bool
    """Whether the file had it; else it is the default of that tool."""
    word: Word
    text: str
    """The settings that it became, and what is different about them; or why there are none."""


@dataclass(frozen=True)
class Migration:
    """A project of ours that goes on where one of theirs stood."""

    files: dict[str, str]
    """Content by name."""
    fates: list[Fate]


def migrate(path: Path) -> Migration:
    """Read a config of mlxsmith 0.1.0, and the exams that it names. Its folder is taken for the project's root.

    Raises:
        ConfigError: the file cannot be read, or a value is not of the key's type.
    """
    given = _read(path)
    theirs = {name: given.get(name, key.default) for name, key in KEYS.items()}
    settings: dict[str, Any] = {"project": "project"}
    files: dict[str, str] = {}
    fates = []
    for name, value in theirs.items():
        if role := _EXAMS.get(name):
            text, but = exam_of(path.parent, value, role, theirs["rlm.benchmark_suite"])
            files |= {f"{role}.yaml": text} if text is not None else {}
            found = {f"evaluate.{role}": f"{role}.yaml"} if text is not None else {}
        elif name == "model.id":
            found, but = _model(path.parent, value)
        else:
            found, but = KEYS[name].becomes(value, theirs)
        word, text = _settle(settings, found, but)
        fates.append(Fate(name, value, name in given, word, text))
    unknown = {name: value for name, value in given.items() if name not in KEYS}
    fates += [Fate(name, value, True, "dropped", "is no key of mlxsmith 0.1.0") for name, value in unknown.items()]
    files |= {CONFIG_NAME: config_text(settings), ".gitignore": starter_files()[".gitignore"]}
    return Migration({**files, REPORT_NAME: _report(path, fates)}, fates)


def _settle(settings: dict[str, Any], found: dict[str, Any], but: str) -> tuple[Word, str]:
    """Take over what is allowed here; the word on it, and the text."""
    if not found:
        return "dropped", but
    try:
        for target, value in found.items():
            _put(settings, target, value)
    except ConfigError as error:
        return "dropped", f"not allowed here, so the default stays: {error}"
    text = ", ".join(f"{target} = {json.dumps(value)}" for target, value in found.items())
    return ("changed", f"{text}: {but}") if but else ("kept", text)


def _put(settings: dict[str, Any], target: str, value: Any) -> None:
    """Set `section.key`, or one end of a range as `section.key[0]`.

    Raises:
        ConfigError: the value is not allowed; then nothing is set.
    """
    *sections, name = target.split(".")
    before = json.loads(json.dumps(settings))
    inside = settings
    for section in sections:
        inside = inside.setdefault(section, {})
    if ranged := re.fullmatch(r"(\w+)\[(\d)\]", name):
        name = ranged[1]
        ends = inside.get(name) or list(getattr(getattr(Config(), sections[0]), name))
        ends[int(ranged[2])] = value
        value = ends
    inside[name] = value
    try:
        parse_config(settings, source="here")
    except ConfigError:
        settings.clear()
        settings.update(before)
        raise


# -------------------------------------------------------------------------------------------------------------- reading


def _read(path: Path) -> dict[str, Any]:
    """What the file says, as `section.key`, of the types that the keys have."""
    text = read_given_text(path, str(path), ConfigError)
    try:
        content = tomllib.loads(text) if path.suffix in (".toml", ".tml") else parse_yaml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {one_line(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(section, dict) for section in content.values()):
        raise ConfigError(f"{path}: is no config of mlxsmith: it must hold sections with settings")
    found = {f"{section}.{key}": value for section, keys in content.items() for key, value in keys.items()}
    return {name: _typed(path, name, value) for name, value in found.items()}


def _typed(path: Path, name: str, value: Any) -> Any:
    """A number where the key has one: YAML reads `2e-4` as text, and that tool takes it all the same."""
    default = KEYS[name].default if name in KEYS else None
    try:
        if isinstance(default, bool) or default is None:
            return value
        if isinstance(default, int | float):
            return type(default)(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}: {name} = {value!r}: must be a number") from None
    if isinstance(default, list):
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
    else:
        fits = value is None or isinstance(value, type(default))
    if not fits:
        raise ConfigError(f"{path}: {name} = {value!r}: must be like {json.dumps(default)}")
    return value


def _model(root: Path, name: str | None) -> tuple[dict[str, Any], str]:
    """The base model; where theirs is the directory of an adapter, that and the base that it was made for."""
    if not name:
        return {}, "names no model, so the default stays"
    directory = (root / name).absolute()
    if not directory.is_dir():
        return {"model.base": name}, ""
    if not (directory / "adapters.safetensors").is_file():
        return {"model.base": str(directory)}, ""
    try:
        base = json.loads((directory / "adapter_metadata.json").read_text())["base_model"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}, f"{directory} does not say for which base it was made: set model.base and model.adapter"
    return {"model.base": base, "model.adapter": str(directory)}, "it is an adapter"


# --------------------------------------------------------------------------------------------------------------- report


def _report(path: Path, fates: list[Fate]) -> str:
    """All keys as a page, those that the file has first."""
    parts = [
        f"# What became of {path.name}",
        "",
        "Defaults of mlxsmith 0.1.0 that the file leaves alone are kept, too.",
    ]
    for title, given in (("Keys of the file", True), ("Keys at their defaults", False)):
        rows = [_row(fate) for fate in fates if fate.given is given]
        parts += ["", f"## {title}", "", table(("Key", "Value", "", "What became of it"), rows)]
    return "\n".join(parts).rstrip() + "\n"


def _row(fate: Fate) -> tuple[str, str, str, str]:
    return fate.key, json.dumps(fate.value, ensure_ascii=False, default=str), fate.word, fate.text
