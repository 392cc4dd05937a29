"""What the documents say is so: commands exist, configs parse, links and paths lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from rlm_cli.main import app
from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.errors import RlmError
from rlm_core.model.default_model import NOTICE

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


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


def blocks(text: str) -> Iterator[str]:
    """What a page shows in fences or indented, without the indentation."""
    yield from re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    unfenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^ {4}.*\n|^\n)+", unfenced, re.MULTILINE):
        yield re.sub(r"^ {4}", "", block, flags=re.MULTILINE)


def shown_commands() -> list[list[str]]:
    """Every line that calls `rlm`, as words; not those of the log, and of the README's table."""
    pages = [document.read_text() for document in DOCS if document.name not in ("README.md", "log.md")]
    found = []
    for page in (*pages, README.split("## The command")[0], README.split("## Every night")[1]):
        for block in blocks(page):
            for line in block.replace("\\\n", " ").splitlines():
                if call := re.fullmatch(r"(?:\$ )?(?:\.venv/bin/)?rlm (\w+\b.*?)(?: {2,}# .*)?", line.rstrip()):
                    words = shlex.split(call[1], comments=True)
                    found.append(words[: words.index(">")] if ">" in words else words)
    return [words for position, words in enumerate(found) if words not in found[:position]]


def shown_settings() -> list[dict[str, Any]]:
    """Every block of every page that consists of sections of a config."""
    found = []
    for document in DOCS:
        for block in blocks(document.read_text()):
            try:
                content = yaml.safe_load(block)
            except yaml.YAMLError:
                continue
            if isinstance(content, dict) and content.keys() <= Config.model_fields.keys():
                found.append(content)
    return found


@pytest.mark.parametrize("words", shown_commands(), ids=" ".join)
def test_a_command_that_a_page_shows_can_be_given_like_that(words: list[str]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    group.commands[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("content", shown_settings(), ids=str)
def test_settings_that_a_page_shows_are_settings(content: dict[str, Any]) -> None:
    Config.parse({"project": "project"} | content)


@pytest.mark.parametrize(
    ("page", "text"),
    [("README.md", README.split("## The tree")[1]), ("architecture.md", ARCHITECTURE.split("## What may know")[1])],
)
def test_every_path_in_a_tree_exists(page: str, text: str) -> None:
    """Directories begin a line with nothing or two spaces less than what is in them."""
    found = []
    for block in blocks(text):
        parent = ""
        for line in block.splitlines():
            names = re.split(r"\s{2,}", line.strip())[0].split()
            if names and all(re.fullmatch(r"[\w/]+/|\w+\.py", name) for name in names):
                parent = parent if line.startswith("  ") else ""
                found += [parent + name for name in names]
                if len(names) == 1 and not line.startswith("  "):
                    parent = names[0]
    assert len(found) > 20
    assert [name for name in found if not (ROOT / name).exists()] == [], page


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_pages_that_code_and_settings_name_exist() -> None:
    kinds = ("*/**/*.py", "*/**/*.yaml", "*.yaml", "*.toml", "Makefile")
    files = [file for kind in kinds for file in ROOT.glob(kind) if not file.relative_to(ROOT).parts[0].startswith(".")]
    named = {
        (page, file) for file in files for page in re.findall(r"\bdocs/[\w-]+\.md", file.read_text(errors="replace"))
    }
    assert len(named) > 20
    assert [(page, str(file)) for page, file in named if not (ROOT / page).is_file()] == []


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


def automations() -> list[Any]:
    return [yaml.safe_load(path.read_text())["automations"] for path in sorted((ROOT / "automations").glob("*.yaml"))]


def test_automations_wait_for_events_that_the_page_lists_and_use_their_payload() -> None:
    page = (ROOT / "docs" / "deployments.md").read_text()
    rows = re.findall(r"^\| (`rlm\..*) \| .* \| (.*) \|$", page, re.MULTILINE)
    payloads = {event: payload for events, payload in rows for event in re.findall(r"`(rlm\.\w+)`", events)}
    assert len(payloads) == 6
    for [automation] in automations():
        texts = " ".join(str(action) for action in automation["actions"])
        used = set(re.findall(r"event\.payload\.(\w+)", texts)) - {"project"}
        for event in automation["trigger"]["expect"]:
            assert used <= set(re.findall(r"`(\w+)`", payloads[event])), event


def test_an_automation_that_runs_a_deployment_is_about_the_project_of_its_config() -> None:
    about = {}
    for [automation] in automations():
        for action in automation["actions"]:
            if action["type"] == "run-deployment":
                config = load_config(ROOT / action["parameters"]["config"])
                about[automation["trigger"]["match"]["prefect.resource.id"]] = (
                    f"rlm.project.{Path(config.project).name}"
                )
    assert about
    assert list(about) == list(about.values())


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
