"""A config as a file for people: every setting with its explanation, those that differ from the default switched on.

The explanations are the docstrings of config.py, read from its source, so they stand in one place.
"""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel

from rlm_core.config import Config
from rlm_core.config_file import parse_config

_WIDTH = 100
_HEADER = """\
Settings of this project. A setting with # right before its name has the value that it has anyway: take the # away, and
the one before its section, and change it. Paths are relative to where `rlm` is started."""


def config_text(settings: dict[str, Any]) -> str:
    """The YAML of a config.

    Args:
        settings: what is switched on, as in a config file. All other settings stand there as comments.

    Raises:
        ConfigError: one of the settings is not allowed.
    """
    lines = [*_comment(_HEADER, ""), "", *_section(Config, settings, parse_config(settings).dump(), "")]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: type[BaseModel], settings: dict[str, Any], values: dict[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for name, field in section.model_fields.items():
        kind = field.annotation
        on = name in settings
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            inside = _section(kind, settings.get(name, {}), values[name], indent + "  ")
            about = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
            lines += ["", *_comment(about, indent), f"{indent}{'' if on else '#'}{name}:", *inside]
        else:
            lines += _comment(_about(section, name, kind), indent)
            lines.append(f"{indent}{'' if on else '#'}{name}: {_yaml(values[name])}")
    return lines


def _about(section: type[BaseModel], name: str, kind: Any) -> str:
    choice = f"One of {', '.join(map(str, get_args(kind)))}." if get_origin(kind) is Literal else ""
    return " ".join(filter(None, (_explanations(section).get(name, ""), choice)))


@cache
def _explanations(section: type[BaseModel]) -> dict[str, str]:
    """What stands below each setting in the source."""
    declared: Any = ast.parse(textwrap.dedent(inspect.getsource(section))).body[0]
    return {
        setting.target.id: inspect.cleandoc(str(below.value.value))
        for setting, below in pairwise(declared.body)
        if isinstance(setting, ast.AnnAssign)
        and isinstance(setting.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), _WIDTH)]


def _yaml(value: Any) -> str:
    """A value in one line."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=1 << 20, allow_unicode=True).removesuffix("...\n").strip()
    )
