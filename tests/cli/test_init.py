"""`rlm init`: a config that says what every setting means, examples that work, and nothing overwritten."""

import json
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from rlm_core.config import Config, VerifySection
from rlm_core.config_file import load_config, parse_config
from rlm_core.errors import ConfigError
from rlm_core.sources import read_problems
from rlm_core.starter.config_text import config_text
from rlm_core.verifiers.check import check_problems
from tests.command import Rlm, assert_refused


def uncommented(text: str) -> str:
    """The config with every setting switched on, as its first lines tell a person to do it."""
    return re.sub(r"^( *)#(?! )", r"\1", text, flags=re.MULTILINE)


def test_with_everything_switched_on_the_text_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(uncommented(config_text({})))
    assert load_config(path) == Config()


def test_every_setting_stands_there_once() -> None:
    def names(section: type[BaseModel]) -> list[str]:
        found = []
        for name, field in section.model_fields.items():
            kind = field.annotation
            found.append(name)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found += names(kind)
        return found

    shown = re.findall(r"^ *#?(\w+):", config_text({}), re.MULTILINE)
    assert shown == names(Config)


def test_only_what_is_given_is_switched_on(tmp_path: Path) -> None:
    given = {"seed": 3, "train": {"adapter": {"rank": 4}}, "filter": {"blocked": ["a: #b"]}}
    path = tmp_path / "some.yaml"
    path.write_text(config_text(given))
    assert yaml.safe_load(path.read_text()) == given
    assert load_config(path) == parse_config(given)


def test_explanations_are_those_of_the_declarations() -> None:
    text = config_text({})
    assert "  # G, rollouts per problem.\n  #group_size: 8\n" in text
    assert "# When a candidate becomes the incumbent; docs/gate.md compares the rules.\n#gate:\n" in text
    assert "  # One of paired, strict, threshold, ema.\n  #rule: paired\n" in text


def test_a_setting_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.group_size = 1"):
        config_text({"rollout": {"group_size": 1}})


def test_a_new_project_can_be_used_as_it_is(rlm: Rlm, tmp_path: Path) -> None:
    done = rlm("init", "mine")
    assert done.code == 0, done.err
    project = tmp_path / "mine"
    assert {path.name for path in project.iterdir()} == {"rlm.yaml", "problems.jsonl", "exam.yaml", ".gitignore"}
    config = load_config(project / "rlm.yaml")
    for file in (config.generate.bank, "exam.yaml"):  # their solutions pass, or this raises
        check_problems(read_problems(str(project / file)), VerifySection().limits, ())
    assert f"/{config.project}/" in (project / ".gitignore").read_text().splitlines()


def test_solutions_of_the_examples_pass_their_own_exam(rlm: Rlm, tmp_path: Path) -> None:
    assert rlm("init").code == 0
    code = [problem for problem in read_problems(str(tmp_path / "exam.yaml")) if problem.reference]
    (tmp_path / "code.jsonl").write_text(
        "".join(problem.model_dump_json(exclude={"provenance"}) + "\n" for problem in code)
    )
    for suite in ("problems.jsonl", "code.jsonl"):
        done = rlm("exam", "--policy", "reference", "--suite", suite, "--config", "rlm.yaml", "--json")
        assert json.loads(done.out)["pass_at"] == {"1": 1.0}, suite


@pytest.mark.parametrize("name", ["rlm.yaml", "problems.jsonl", ".gitignore"])
def test_nothing_is_overwritten_and_nothing_else_is_written(rlm: Rlm, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert_refused(rlm("init"), 2, name, "is there already")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_place_that_cannot_be_written_is_named(rlm: Rlm, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(rlm("init", "file/below"), 6, "file/below", "Not a directory")
