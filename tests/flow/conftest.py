"""One Prefect server for the whole session, and projects for the tiny model."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"

from prefect.testing.utilities import prefect_test_harness

from tests import tiny

MakeConfig = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def prefect_server() -> Iterator[None]:
    """A temporary server with its own database; starting it takes tens of seconds on a small machine."""
    with prefect_test_harness(server_startup_timeout=180):
        yield


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
                "lora": {"rank": 4, "modules": ["mlp.down_proj"]},
            },
            "evaluate": {"benchmark": benchmark, "holdout": holdout, "samples": 3, "max_tokens": 20},
            "prefect": {"retry_delay_s": 0.0},
        }
        for name, section in sections.items():
            content[name] = {**content.get(name, {}), **section}
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({"project": str(tmp_path / "project"), **content}))
        return path

    return make
