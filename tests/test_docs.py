"""What the documents say is so: commands exist, configs parse, links and paths lead somewhere."""

import re
from pathlib import Path

import pytest
import yaml

from rlm_cli.main import app
from rlm_core.config import load_config
from rlm_core.default_model import NOTICE
from rlm_core.errors import RlmError

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()


def commands() -> set[str]:
    return {str(command.name or command.callback.__name__) for command in app.registered_commands if command.callback}


def test_every_command_is_in_the_readme_and_every_one_there_exists() -> None:
    shown = set(re.findall(r"^ {4}rlm (\w+)", README, re.MULTILINE))
    assert shown == commands()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`| {4})make ([a-z-]+)", README))
    assert named
    assert named <= targets


def test_every_path_in_the_tree_exists() -> None:
    tree = README.split("## The tree")[1].split("##")[0]
    for line in re.findall(r"^ {4,}(\S.*)$", tree, re.MULTILINE):
        for word in re.split(r"\s{2,}", line)[0].split():
            assert any((ROOT / place / word).exists() for place in ("", "rlm_core")), word


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configs_parse_and_say_what_they_are_for(config: Path) -> None:
    load_config(config)
    assert config.read_text().startswith("# ")


def test_exit_codes_in_the_readme_are_those_of_the_errors() -> None:
    def every(kind: type[RlmError]) -> set[int]:
        return {kind.exit_code}.union(*(every(below) for below in kind.__subclasses__()))

    sentence = re.split(r"exit code\s+says", README)[1].split("\n\n")[0]
    assert {int(number) for number in re.findall(r"\b\d+\b", sentence)} == every(RlmError) - {1}


def test_deployments_name_flows_that_exist_and_their_parameters() -> None:
    for deployment in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]:
        module, _, function = deployment["entrypoint"].rpartition(".")
        source = (ROOT / (module.replace(".", "/") + ".py")).read_text()
        assert f"def {function}(" in source
        for parameter in deployment["parameters"]:
            assert f"{parameter}: " in source
        config = deployment["parameters"].get("config")
        assert config is None or (ROOT / config).is_file()


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


def test_each_behaviour_of_the_other_loops_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (ROOT / "docs" / "migrating.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 30))
    for number, shown_by in rows:
        named = re.findall(r"`(tests/\S+\.py)::(\w+)`", shown_by)
        assert named, f"row {number} is shown by nothing"
        for file, name in named:
            source = (ROOT / file).read_text()
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"row {number}: {file} has no {name}"


def test_the_notice_says_what_the_default_model_asks_for() -> None:
    assert " ".join(NOTICE.split()) in " ".join((ROOT / "NOTICE").read_text().split())


def test_the_lock_pins_every_version_and_names_no_registry() -> None:
    lock = (ROOT / "ci.lock").read_text()
    pinned = re.findall(r"^([\w.-]+)==\S+(?: ;.*)? \\\n +--hash=sha256:", lock, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^\w", lock, re.MULTILINE)) > 100
    assert "://" not in lock
