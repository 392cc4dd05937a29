"""docs/verifiers.md, followed to the letter: its files are written, its commands run, and they print what it says."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_cli.main import main
from rlm_core.config_file import load_config
from rlm_core.problems import Problem
from rlm_core.sources import read_problems
from rlm_core.verifiers.check import check_problems
from tests.doc_page import matches, steps

PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text()


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints; `rlm` is called in this process."""
    if not command.startswith("rlm "):
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    failed = re.search(r'^failed|"status": "failed"', captured.out, re.M)
    expected = 2 if captured.err else 1 if failed else 0
    assert int(end.value.code or 0) == expected, captured
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("printed", "page", "same"),
    [
        ("a  b\nc", "a b\nc\n", True),
        ("a b", "a", False),
        ("x\ny\na 12 b\nz", "…\na … b\n…", True),
        ("x\nc", "…\na\n…", False),
    ],
)
def test_what_is_printed_is_compared_with_the_page(printed: str, page: str, same: bool) -> None:
    assert matches(printed, page) == same


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("checks", None)


def test_the_page_does_what_it_says(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = 0
    for what, name, content in steps(PAGE):
        if what == "write":
            (directory / name).write_text(content)
        else:
            commands += 1
            printed = run(name, capsys, monkeypatch)
            assert matches(printed, content) or printed == content == "", f"$ {name}\n{printed}"
    assert commands > 20
    config = load_config("config.yaml")
    problems = read_problems(config.generate.bank)
    check_problems(problems, config.verify.limits, config.verify.functions)


def test_every_kind_is_on_the_page() -> None:
    kinds = set(Problem.model_json_schema()["properties"]["verifier"]["discriminator"]["mapping"])
    assert kinds == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) - {"kind"}
