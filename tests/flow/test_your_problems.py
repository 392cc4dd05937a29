"""docs/your-problems.md, followed to the letter with the tiny model in the place of the default one."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rlm_cli.main import main
from tests.core.test_verifiers_page import matches, steps

PAGE = (Path(__file__).parents[2] / "docs" / "your-problems.md").read_text()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, whose modules are forgotten afterwards."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "work"
    sys.modules.pop("checks", None)


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints, without its progress; `rlm` is called in this process."""
    if not command.startswith("rlm "):
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    refused = re.findall(r"^rlm: .*\n", captured.err, re.M)
    expected = 2 if refused else 1 if captured.out.startswith("failed") else 0
    assert int(end.value.code or 0) == expected, captured
    return captured.out + "".join(refused)


def test_the_page_does_what_it_says(
    directory: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []
    for what, name, content in steps(PAGE):
        if what == "write":
            (directory / name).write_text(content)
            if name == "mine.yaml":
                with (directory / name).open("a") as file:
                    file.write(yaml.safe_dump({"model": {"base": str(tiny_model)}}))
        else:
            commands.append(name)
            printed = run(name, capsys, monkeypatch)
            assert matches(printed, content) or printed == content == "", f"$ {name}\n{printed}"
    assert sum(command.startswith("rlm run") for command in commands) == 1
    assert (directory / "mine" / "runs" / "0001" / "decision.json").is_file()
