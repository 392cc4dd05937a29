"""Fixtures that every tier shares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

from rlm_cli.main import main
from tests import tiny
from tests.command import Done, Rlm, Settings

MakeConfig = Callable[..., Path]

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tiny model, made once a session."""
    return tiny.make_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture
def make_config(tiny_model: Path, tmp_path: Path) -> MakeConfig:
    """Writes a config file for the tiny model; sections given by name are merged into it."""
    bank = tiny.write_problems(tmp_path / "train.jsonl", [tiny.problem(2, i) for i in range(6)])
    benchmark = tiny.write_problems(tmp_path / "benchmark.jsonl", [tiny.problem(2, i) for i in range(20, 30)])
    holdout = tiny.write_problems(tmp_path / "holdout.jsonl", [tiny.problem(2, i) for i in range(40, 46)])

    def make(**sections: dict[str, Any]) -> Path:
        content: dict[str, dict[str, Any]] = {
            "model": {"base": str(tiny_model)},
            "generate": {"problems": 6, "sources": {"model": 1, "bank": 5}, "max_tokens": 16, "bank": bank},
            "mutate": {"parents": 1, "max_tokens": 16},
            "filter": {"max_similarity": 1.0},
            "rollout": {"group_size": 6, "max_tokens": 20, "shard_problems": 2},
            "train": {
                "learning_rate": 5e-3,
                "epochs": 2,
                "minibatch": 12,
                "adapter": {"rank": 4, "modules": ["mlp.down_proj"]},
            },
            "evaluate": {"benchmark": benchmark, "holdout": holdout, "samples": 3, "max_tokens": 20},
            "gate": {"horizon": 1},  # a suite of ten problems proves little
            "prefect": {"retry_delay_s": 0.0},
        }
        for name, section in sections.items():
            content[name] = {**content.get(name, {}), **section}
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({"project": str(tmp_path / "project"), **content}))
        return path

    return make


@pytest.fixture
def rlm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rlm:
    """The command, called in this process from an empty directory."""

    def call(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["rlm", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def settings(tiny_model: Path, tmp_path: Path) -> Settings:
    """Sections of a config that would work."""
    suites = {
        name: tiny.write_problems(tmp_path / f"{name}.jsonl", tiny.problems(3, i)) for i, name in enumerate("abc")
    }
    return {
        "model": {"base": str(tiny_model)},
        "generate": {"bank": suites["a"]},
        "evaluate": {"benchmark": suites["b"], "holdout": suites["c"]},
    }
