"""The command as tests call it: what it is given, how it ended, what it refuses."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    code: int
    out: str
    err: str


Rlm = Callable[..., Done]
Settings = dict[str, dict[str, object]]


def assert_refused(done: Done, code: int, *parts: str) -> None:
    """It ended with this code and one line that has these parts."""
    assert done.code == code, done.err
    [line] = [line for line in done.err.splitlines() if line.startswith("rlm: ")]
    for part in parts:
        assert part in line
    assert "Traceback" not in done.err


def write(tmp_path: Path, content: Settings) -> str:
    """A config file of these sections."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"project": str(tmp_path / "project"), **content}))
    return str(path)


def exam(rlm: Rlm, config: Path, *arguments: str) -> dict[str, Any]:
    """The report of an exam that is sat with these arguments."""
    done = rlm("exam", "--json", "-c", str(config), *arguments)
    assert done.code == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    return report
