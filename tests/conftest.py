"""Fixtures that every tier shares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from tests import tiny

MakeConfig = Callable[..., Path]

# How long an example takes says how busy the machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


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
            "generate": {"problems": 6, "from_model": 1, "max_tokens": 16, "bank": bank},
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
