"""A new project's files: settings, problems to train on, an exam. Nothing that is there already is touched."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import yaml

from rlm_core.errors import StageFailed, UsageError
from rlm_core.starter.config_text import config_text

CONFIG_NAME = "rlm.yaml"
"""What a project's config is called; the commands take it when they are started beside it."""


def starter_files() -> dict[str, str]:
    """The files of a project that begins with the default model and a few example problems, by their names."""
    example = resources.files("rlm_core") / "starter"
    settings = yaml.safe_load((example / "settings.yaml").read_text())
    return {
        CONFIG_NAME: config_text(settings),
        "problems.jsonl": (example / "problems.jsonl").read_text(),
        "exam.yaml": (example / "exam.yaml").read_text(),
        ".gitignore": (example / "gitignore").read_text(),
    }


def make_project(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files of a new project.

    Raises:
        UsageError: one of them is there already; then none is written.
        StageFailed: the directory cannot be written.
    """
    present = [name for name in files if (directory / name).exists()]
    if present:
        raise UsageError(f"{directory / present[0]} is there already; choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (directory / name).open("x", encoding="utf-8") as file:  # never over one that came meanwhile
                file.write(text)
    except OSError as error:
        raise StageFailed(f"cannot write {error.filename or directory}: {error.strerror}") from error
