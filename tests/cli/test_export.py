"""`rlm export`: the model that comes out is the policy that went in, or nothing comes out."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import yaml

from rlm_core.config import AdapterSection
from rlm_core.config_file import load_config
from rlm_core.errors import StageFailed
from rlm_core.export.agreement import require_equal_logprobs, require_equal_scores
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.records import AdapterRef
from tests import tiny
from tests.command import Rlm, assert_refused
from tests.conftest import MakeConfig
from tests.samples.exam_reports import report

MODULES = ("self_attn.q_proj", "mlp.down_proj")
SHAPES = {
    "lora": AdapterSection(rank=4, modules=MODULES),
    "dora": AdapterSection(kind="dora", rank=4, modules=MODULES),
    "full": AdapterSection(kind="full", modules=MODULES),
}

MakeAdapter = Callable[[str], AdapterRef]


@pytest.fixture
def make_adapter(policy: Policy, tmp_path: Path) -> MakeAdapter:
    """Puts an adapter of a kind, moved at random from where training begins, on the tiny model and saves it."""

    def make(kind: str) -> AdapterRef:
        policy.add_adapter(SHAPES[kind], seed=1)
        mx.random.seed(5)
        by = 0.02 if kind == "full" else 0.2
        moved = [(name, value + by * mx.random.normal(value.shape)) for name, value in policy.trainable().items()]
        policy.model.load_weights(moved, strict=False)
        return policy.save_adapter(tmp_path / "adapter", {"iteration": 3, "run": "r", "source_adapter": None})

    return make


def logprobs(policy: Policy) -> np.ndarray:
    prompt = policy.prompt_tokens(tiny.problem(1).prompt)
    return np.array(policy.answer_logprobs(mx.array([prompt]), mx.array([policy.answer_tokens(tiny.answer(2))])))


@pytest.mark.parametrize("kind", SHAPES)
def test_the_exported_model_is_the_policy(
    rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    adapter = make_adapter(kind)
    done = rlm("export", "out/mine", "-p", adapter.path, "-c", str(make_config()))
    assert done.code == 0, done.err
    out = tmp_path / "out" / "mine"
    expected = logprobs(load_policy(str(tiny_model), adapter))
    assert np.abs(expected - logprobs(load_policy(str(tiny_model)))).max() > 0.01
    assert logprobs(load_policy(str(out))) == pytest.approx(expected, abs=1e-4)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert {path.name for path in (out / "exams").iterdir()} == {"adapter.json", "fused.json"}


def test_mlx_lm_loads_what_was_exported_with_the_same_tokenizer(
    rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tiny_model: Path, tmp_path: Path
) -> None:
    assert rlm("export", "mine", "-p", make_adapter("lora").path, "-c", str(make_config())).code == 0
    _, tokenizer = mlx_lm.load(str(tmp_path / "mine"))  # type: ignore[misc]
    text = tiny.problem(3).prompt
    assert tokenizer.encode(text) == load_policy(str(tiny_model)).tokenizer.encode(text)


def test_the_card_names_lineage_exams_settings_and_licences(
    rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tiny_model: Path, tmp_path: Path
) -> None:
    adapter, config = make_adapter("lora"), make_config()
    assert rlm("export", "mine", "-p", adapter.path, "-c", str(config)).code == 0
    _, metadata, card = (tmp_path / "mine" / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(metadata)["library_name"] == "mlx"
    assert f"SHA-256 {adapter.sha256}" in card
    assert str(tiny_model) in card.split("## Licences")[1]
    settings = card.split("## Settings")[1].split("```")[1].removeprefix("text")
    assert yaml.safe_load(settings) == load_config(config).dump()
    assert "| fused, as it is here | " in card


def test_nothing_is_overwritten(rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = rlm("export", "mine", "-p", make_adapter("lora").path, "-c", str(make_config()))
    assert_refused(done, 2, str(tmp_path / "mine"), "is there already")
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("policy", ["base", "incumbent", "reference"])
def test_a_policy_without_an_adapter_is_refused(rlm: Rlm, make_config: MakeConfig, tmp_path: Path, policy: str) -> None:
    assert_refused(rlm("export", "mine", "-p", policy, "-c", str(make_config())), 2, policy, "has no adapter")
    assert not (tmp_path / "mine").exists()


def test_gguf_is_refused_before_any_work_where_the_tokenizer_would_come_out_wrong(
    rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tmp_path: Path
) -> None:
    done = rlm("export", "mine", "--gguf", "-p", make_adapter("lora").path, "-c", str(make_config()))
    assert_refused(done, 2, "--gguf", "tokenizer", "llama.cpp")
    assert not (tmp_path / "project").exists()


def test_a_model_that_is_not_the_policy_is_not_exported(
    rlm: Rlm, make_config: MakeConfig, make_adapter: MakeAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = make_adapter("lora")
    honest = Policy.save_fused

    def forget_the_adapter(policy: Policy, directory: Path) -> None:
        with policy.adapter_off():
            honest(policy, directory)

    monkeypatch.setattr(Policy, "save_fused", forget_the_adapter)
    assert_refused(rlm("export", "out/mine", "-p", adapter.path, "-c", str(make_config())), 6, "is not the policy")
    assert list((tmp_path / "out").iterdir()) == []


def test_log_probabilities_may_differ_by_rounding_only() -> None:
    assert require_equal_logprobs([[-1.0, -2.0]], [[-1.0, -2.001]], mx.float32) == pytest.approx(5e-4)
    assert require_equal_logprobs([[-1.0]], [[-1.03]], mx.bfloat16) == pytest.approx(0.03)
    with pytest.raises(StageFailed, match=r"0\.03 nats"):
        require_equal_logprobs([[-1.0]], [[-1.03]], mx.float32)
    with pytest.raises(StageFailed):
        require_equal_logprobs([[-1.0]], [[float("nan")]], mx.float32)


def test_scores_may_differ_by_sampling_only() -> None:
    adapted, same, worse = report([1] * 12), report([1] * 10 + [0, 0]), report([0] * 12)
    assert require_equal_scores(adapted, same).worse == 2
    with pytest.raises(StageFailed, match=r"scores 0\.000"):
        require_equal_scores(adapted, worse)
    with pytest.raises(StageFailed):
        require_equal_scores(worse, adapted)
