"""The default model, exported: the same policy, also as GGUF."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.config import DEFAULT_MODEL, AdapterSection
from rlm_core.config_file import parse_config
from rlm_core.export.run import export
from rlm_core.model.default_model import convert
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.sources import read_problems
from tests import tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def logprobs(policy: Policy) -> np.ndarray:
    prompt = policy.prompt_tokens("Write a Python function add(a, b).")
    answer = policy.answer_tokens("def add(a, b):\n    return a + b\n")
    return np.array(policy.answer_logprobs(mx.array([prompt]), mx.array([answer])))


def test_the_exported_default_model_and_its_gguf_file_are_the_policy(tmp_path: Path) -> None:
    policy = load_policy(DEFAULT_MODEL)
    policy.add_adapter(AdapterSection(rank=4, modules=("self_attn.q_proj", "mlp.down_proj")), seed=1)
    moved = [(name, value + 0.01 * mx.random.normal(value.shape)) for name, value in policy.trainable().items()]
    policy.model.load_weights(moved, strict=False)
    expected = logprobs(policy)
    adapter = policy.save_adapter(tmp_path / "adapter", {"iteration": 1, "run": "r", "source_adapter": None})
    assert np.abs(expected - logprobs(load_policy(DEFAULT_MODEL))).mean() > 0.01
    suite = tiny.write_problems(tmp_path / "suite.jsonl", read_problems("bank:benchmark[starter]")[:6])
    config = parse_config(
        {
            "project": str(tmp_path / "project"),
            "evaluate": {"benchmark": suite, "samples": 1, "max_tokens": 24},
        }
    )
    exported = export(config, adapter.path, tmp_path / "mine", gguf=True)
    assert exported.difference < 1e-4
    assert logprobs(load_policy(str(tmp_path / "mine"))) == pytest.approx(expected, abs=1e-3)

    back = tmp_path / "back"
    back.mkdir()
    convert(tmp_path / "mine" / "mine.gguf", back)
    assert logprobs(load_policy(str(back))) == pytest.approx(expected, abs=1e-3)
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "Hugging Face" in card.split("## Licences")[1]
