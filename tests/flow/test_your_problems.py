"""docs/your-problems.md, followed to the letter with the tiny model in the place of the default one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.doc_page import matches, steps

PAGE = (Path(__file__).parents[2] / "docs" / "your-problems.md").read_text()


def run(command: str, directory: Path) -> str:
    """What a command prints, without its progress."""
    arguments = ["sh", "-c", command]
    if command.startswith("rlm "):
        arguments = [sys.executable, "-m", "rlm_cli.main", *command.split()[1:]]
    ended = subprocess.run(arguments, cwd=directory, capture_output=True, text=True)
    refused = re.findall(r"^rlm: .*\n", ended.stderr, re.M)
    assert ended.returncode == (2 if refused else 1 if ended.stdout.startswith("failed") else 0), ended
    return ended.stdout + "".join(refused)


@pytest.mark.timeout(600)
def test_the_page_does_what_it_says(tmp_path: Path, tiny_model: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    commands = []
    for what, name, content in steps(PAGE):
        if what == "write":
            (directory / name).write_text(content)
            if name == "mine.yaml":
                with (directory / name).open("a") as file:
                    file.write(yaml.safe_dump({"model": {"base": str(tiny_model)}}))
        else:
            commands.append(name)
            printed = run(name, directory)
            assert matches(printed, content) or printed == content == "", f"$ {name}\n{printed}"
    assert sum(command.startswith("rlm run") for command in commands) == 1
    assert (directory / "mine" / "runs" / "0001" / "decision.json").is_file()
