"""LoRA, DoRA and full: what is trained, what is saved, and what is refused before any work."""

import json
import logging
import shutil
import weakref
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import pytest
from mlx_lm.models import gemma3_text, llama, qwen3
from mlx_lm.utils import load_model

from rlm_core import progress
from rlm_core.config import AdapterSection, TrainSection
from rlm_core.config_file import load_config
from rlm_core.errors import AdapterError, Interrupted
from rlm_core.iteration import check
from rlm_core.model import loading
from rlm_core.model.adapters import base_policy, check_trainable, read_adapter
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.model.tensors import flat, read_tensors
from rlm_core.records import AdapterRef, TrainReport
from rlm_core.state.ledger import Base, is_begun, open_ledger
from rlm_core.state.project import Project
from rlm_core.train import train
from rlm_core.training.batches import Experience, experience_from, minibatches
from rlm_core.training.trainer import Trainer
from tests.conftest import MakeConfig
from tests.core.conftest import ROLLOUT, Judged

MODULES = ("self_attn.q_proj", "mlp.down_proj")
SHAPES = {
    "lora": AdapterSection(kind="lora", rank=4, scale=3.0, modules=MODULES),
    "dora": AdapterSection(kind="dora", rank=4, scale=3.0, modules=MODULES),
    "full": AdapterSection(kind="full", modules=MODULES),
}
LEAVES = {"lora": ("lora_a", "lora_b"), "dora": ("lora_a", "lora_b", "m"), "full": ("weight",)}
LOW_RANK = ("lora", "dora")

every_kind = pytest.mark.parametrize("kind", SHAPES)


def expected_names(kind: str, layers: tuple[int, ...] = (0, 1)) -> set[str]:
    """The parameters of the tiny model that may be trained."""
    return {f"model.layers.{i}.{module}.{leaf}" for i in layers for module in MODULES for leaf in LEAVES[kind]}


def shake(policy: Policy, size: float = 0.05) -> None:
    """Move the trainable weights at random."""
    mx.random.seed(5)
    moved = [(name, value + size * mx.random.normal(value.shape)) for name, value in policy.trainable().items()]
    policy.model.load_weights(moved, strict=False)


def parameters(policy: Policy) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in flat(policy.model.parameters()).items()}


def logprobs(policy: Policy) -> np.ndarray:
    return np.array(policy.answer_logprobs(mx.array([[7, 8, 9, 10]]), mx.array([[5, 9, 30], [11, 12, 13]])))


def made(policy: Policy, kind: str, directory: Path, **origin: Any) -> AdapterRef:
    """An adapter of this kind that changes something, saved."""
    policy.add_adapter(SHAPES[kind], seed=1)
    shake(policy)
    return policy.save_adapter(directory, origin)


# ----------------------------------------------------------------------------------------------------- saved and loaded


@every_kind
def test_a_fresh_adapter_changes_nothing(policy: Policy, kind: str) -> None:
    before = logprobs(policy)
    policy.add_adapter(SHAPES[kind], seed=1)
    # DoRA divides by a norm and multiplies by the same one.
    np.testing.assert_allclose(logprobs(policy), before, atol=1e-5 if kind == "dora" else 0)


@every_kind
def test_an_adapter_gives_the_same_logprobs_in_mlx_lm(
    policy: Policy, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    """The adapter is in mlx-lm's own format, with base model, source adapter, run, kind, iteration."""
    before = logprobs(policy)
    adapter = made(policy, kind, tmp_path / "adapter", run="r", iteration=3, source_adapter=None)
    tokens = mx.array([[7, 8, 9, 10, 5, 9, 30]])
    model, _ = mlx_lm.load(str(tiny_model), adapter_path=adapter.path)[:2]
    np.testing.assert_allclose(np.array(model(tokens)), np.array(policy.model(tokens)), atol=1e-5)
    assert np.abs(logprobs(policy) - before).max() > 0.01
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["fine_tune_type"] == config["rlm"]["kind"] == kind
    assert {"base_model", "source_adapter", "run", "iteration"} <= config["rlm"].keys()
    assert config["rlm"]["base_model"] == str(tiny_model)


@every_kind
def test_a_saved_adapter_comes_back_with_shape_scale_and_weights(
    policy: Policy, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    adapter = made(policy, kind, tmp_path)
    again = load_policy(str(tiny_model), read_adapter(adapter.path))
    assert again.shape == SHAPES[kind]
    assert again.name == adapter.sha256
    assert again.trainable().keys() == expected_names(kind)
    scales = {module.scale for _, module in again.model.named_modules() if "lora_a" in module}
    assert scales == ({3.0} if kind in LOW_RANK else set())
    np.testing.assert_array_equal(logprobs(again), logprobs(policy))


def test_a_number_of_layers_that_the_model_does_not_have_means_all(policy: Policy, tmp_path: Path) -> None:
    policy.add_adapter(SHAPES["full"].model_copy(update={"layers": 9}), seed=0)
    assert policy.trainable().keys() == expected_names("full")
    adapter = policy.save_adapter(tmp_path, {})
    check_trainable(policy.base, adapter, SHAPES["full"])
    assert json.loads((tmp_path / "adapter_config.json").read_text())["num_layers"] == 2


def test_full_trains_a_module_that_holds_others(policy: Policy, tmp_path: Path) -> None:
    policy.add_adapter(AdapterSection(kind="full", layers=1, modules=("mlp", "input_layernorm")), seed=0)
    mlp = {f"mlp.{name}_proj" for name in ("gate", "up", "down")}
    assert policy.trainable().keys() == {f"model.layers.1.{name}.weight" for name in (*mlp, "input_layernorm")}
    assert load_policy(policy.base, policy.save_adapter(tmp_path, {})).trainable().keys() == policy.trainable().keys()


@pytest.mark.parametrize("kind", LOW_RANK)
def test_a_module_that_cannot_have_low_rank_is_refused(policy: Policy, kind: str) -> None:
    with pytest.raises(AdapterError, match=r"train\.adapter\.modules: Can't convert layer of type MLP"):
        policy.add_adapter(SHAPES[kind].model_copy(update={"modules": ("mlp",)}), seed=0)


@every_kind
def test_an_adapter_that_lacks_weights_is_refused(policy: Policy, tmp_path: Path, kind: str) -> None:
    adapter = made(policy, kind, tmp_path)
    file = Path(adapter.path, "adapters.safetensors")
    weights = read_tensors(file)
    gone = sorted(weights)[0]
    mx.save_safetensors(str(file), {name: value for name, value in weights.items() if name != gone})
    with pytest.raises(AdapterError, match=f"do not agree about {gone}"):
        load_policy(policy.base, read_adapter(tmp_path))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lora_parameters": {"rank": 4, "scale": 3.0}}, "does not give the adapter's shape"),
        ({"lora_parameters": None}, "does not give the adapter's shape"),
        ({"fine_tune_type": "prefix"}, "no possible shape: kind: Input should be 'lora', 'dora' or 'full'"),
    ],
)
def test_an_adapter_config_that_does_not_give_a_shape_is_refused(
    policy: Policy, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    adapter = made(policy, "lora", tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(AdapterError, match=complaint):
        load_policy(policy.base, adapter)


def test_on_a_cpu_an_adapter_in_16_bits_is_computed_in_32(policy: Policy, tmp_path: Path) -> None:
    made(policy, "full", tmp_path)
    file = tmp_path / "adapters.safetensors"
    weights = read_tensors(file)
    mx.save_safetensors(str(file), {name: value.astype(mx.bfloat16) for name, value in weights.items()})
    again = load_policy(policy.base, read_adapter(tmp_path))
    assert {value.dtype for value in flat(again.model.parameters()).values()} == {mx.float32}
    assert again.trainable().keys() == expected_names("full")


def test_dropout_of_an_adapter_from_elsewhere_is_off(policy: Policy, tmp_path: Path) -> None:
    adapter = made(policy, "lora", tmp_path)
    without = logprobs(policy)
    file = tmp_path / "adapter_config.json"
    config = json.loads(file.read_text())
    config["lora_parameters"]["dropout"] = 0.5
    file.write_text(json.dumps(config))
    again = load_policy(policy.base, adapter)
    np.testing.assert_array_equal(logprobs(again), without)
    again.model.train()
    assert np.abs(logprobs(again) - without).max() > 1e-3, "the dropout is there, and switched off"


# ------------------------------------------------------------------------------------------------------------- training


def experience(judged: Judged, section: TrainSection) -> Experience:
    return experience_from(judged.rollouts, judged.verdicts, section.settled_method(), 1.0, ROLLOUT.max_tokens)


def train_section(kind: str, **changes: Any) -> TrainSection:
    return TrainSection(learning_rate=2e-3, minibatch=18, micro_batch=6, adapter=SHAPES[kind], **changes)


def train_here(
    judged: Judged, model: Path, directory: Path, section: TrainSection, learner: AdapterRef | None = None
) -> TrainReport:
    return train(str(model), learner, judged.rollouts, judged.verdicts, section, ROLLOUT, 3, directory, {})


def digest_of(report: TrainReport) -> str:
    assert report.candidate is not None
    return report.candidate.sha256


@every_kind
def test_the_first_step_moves_the_adapter_and_nothing_else(
    judged: Judged, policy: Policy, tmp_path: Path, kind: str
) -> None:
    section = train_section(kind)
    policy.add_adapter(section.adapter, seed=1)
    assert policy.trainable().keys() == expected_names(kind)
    before, lessons = parameters(policy), experience(judged, section)
    steps = minibatches(lessons.useful, section, seed=0)
    Trainer(policy, section, lessons, tmp_path, "it").run(steps[:1])
    after = parameters(policy)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    # While lora_b is zero, lora_a has no gradient.
    assert changed == {name for name in expected_names(kind) if not name.endswith("lora_a")}


@every_kind
def test_an_interruption_changes_neither_the_result_nor_what_is_trainable(
    judged: Judged, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    section = train_section(kind, kl_weight=0.2)
    straight = train_here(judged, tiny_model, tmp_path / "straight", section)

    def stop_after_the_first(step: progress.Progress) -> None:
        if step.done == 1:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop_after_the_first):
        train_here(judged, tiny_model, tmp_path / "resumed", section)
    taken: list[int] = []
    with progress.listening(lambda step: taken.append(step.done)):
        resumed = train_here(judged, tiny_model, tmp_path / "resumed", section)
    assert min(taken) == 2
    assert digest_of(resumed) == digest_of(straight)
    saved = mx.load(f"{tmp_path}/resumed/adapter/adapters.safetensors")
    assert set(saved) == expected_names(kind)


@every_kind
def test_the_next_iteration_goes_on_from_the_adapter(
    judged: Judged, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    first = train_here(judged, tiny_model, tmp_path / "1", train_section(kind))
    second = train_here(judged, tiny_model, tmp_path / "2", train_section(kind), first.candidate)
    assert first.candidate is not None
    assert second.candidate is not None
    old, new = (read_tensors(tmp_path / f"{i}/adapter/adapters.safetensors") for i in (1, 2))
    assert old.keys() == new.keys()
    assert 0 < max(np.abs(np.array(new[name] - old[name])).max() for name in old) < 0.1


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "dora"},
        {"kind": "full", "rank": None, "scale": None},
        {"rank": 5},
        {"scale": 3.5},
        {"layers": 1},
        {"modules": MODULES[:1]},
    ],
    ids=lambda change: next(iter(change)) + str(next(iter(change.values()))),
)
def test_every_setting_of_the_adapter_has_an_effect(
    judged: Judged, tiny_model: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    usual = train_section("lora")
    changed = usual.model_copy(update={"adapter": usual.adapter.model_copy(update=change)})
    assert digest_of(train_here(judged, tiny_model, tmp_path / "a", usual)) != digest_of(
        train_here(judged, tiny_model, tmp_path / "b", changed)
    )


# -------------------------------------------------------------------------------------------------- the reference of KL


@every_kind
def test_kl_is_measured_from_the_base_and_not_from_the_incumbent(
    judged: Judged, policy: Policy, tiny_model: Path, tmp_path: Path, kind: str
) -> None:
    incumbent = load_policy(str(tiny_model), made(load_policy(str(tiny_model)), kind, tmp_path))
    section = train_section(kind, kl_weight=0.1)
    lessons = experience(judged, section)
    [step] = Trainer(incumbent, section, lessons, tmp_path, "it").scored(minibatches(lessons.useful, section, 0)[:1])
    for batch in step:
        base = np.array(policy.answer_logprobs(batch.prompt, batch.answers))
        assert batch.reference_logprobs is not None
        assert batch.old_logprobs is not None
        np.testing.assert_allclose(np.array(batch.reference_logprobs), base, atol=1e-5)
        assert np.abs(np.array(batch.old_logprobs) - base).max() > 0.01


@pytest.mark.parametrize(("kind", "kl_weight", "copies"), [("lora", 0.1, 0), ("full", 0, 0), ("full", 0.1, 1)])
def test_a_copy_of_the_base_is_loaded_only_when_needed_and_gone_when_training_starts(
    judged: Judged,
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    kl_weight: float,
    copies: int,
) -> None:
    loaded: list[weakref.ref[nn.Module]] = []

    def load(base: str) -> Policy:
        copy = load_policy(base)
        loaded.append(weakref.ref(copy.model))
        return copy

    monkeypatch.setattr(loading, "load_policy", load)
    section = train_section(kind, kl_weight=kl_weight)
    policy.add_adapter(section.adapter, seed=1)
    lessons = experience(judged, section)
    in_memory: list[bool] = []

    def look(step: progress.Progress) -> None:
        if step.done == 1:
            in_memory.extend(model() is not None for model in loaded)

    with progress.listening(look):
        Trainer(policy, section, lessons, tmp_path, "it").run(minibatches(lessons.useful, section, 0)[:1])
    assert in_memory == [False] * copies


# ---------------------------------------------------------------------------------------------- gradients, other models

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
}
ARCHITECTURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (llama, {"tie_word_embeddings": False}),
    "qwen3": (qwen3, {"tie_word_embeddings": True}),
    "gemma3_text": (gemma3_text, {"sliding_window": 4, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8}),
}


def other_model(architecture: str) -> Policy:
    """A policy of another architecture with random weights; it has no tokenizer."""
    module, special = ARCHITECTURES[architecture]
    mx.random.seed(3)
    model = module.Model(module.ModelArgs.from_dict({"model_type": architecture, **SIZES, **special}))
    return Policy(model, None, f"random {architecture}")


def plain_logprobs(policy: Policy, prompt: mx.array, answers: mx.array) -> mx.array:
    rows = mx.concatenate([mx.broadcast_to(prompt, (answers.shape[0], prompt.shape[1])), answers], axis=1)
    logits = policy.model(rows)[:, prompt.shape[1] - 1 : -1].astype(mx.float32)
    return mx.take_along_axis(nn.log_softmax(logits, axis=-1), answers[..., None], axis=-1)[..., 0]


@every_kind
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_are_those_of_the_plain_computation(architecture: str, kind: str) -> None:
    """On answers of unequal length, each token with a weight of its own; one answer is a single token."""
    policy = other_model(architecture)
    policy.add_adapter(SHAPES[kind], seed=1)
    shake(policy)
    generator = np.random.default_rng(0)
    prompt, answers = mx.array(generator.integers(0, 50, (1, 6))), mx.array(generator.integers(0, 50, (4, 7)))
    mask = np.arange(7) < np.array([[7], [1], [4], [6]])
    weight = mx.array(mask * generator.normal(size=(4, 7)), dtype=mx.float32)
    gradients = []
    for way in (policy.answer_logprobs, lambda p, a: plain_logprobs(policy, p, a)):
        _, gradient = nn.value_and_grad(policy.model, lambda way=way: (way(prompt, answers) * weight).sum())()
        gradients.append({name: np.array(value) for name, value in flat(gradient).items()})
    shared, plain = gradients
    assert shared.keys() == plain.keys() == policy.trainable().keys()
    for name in plain:
        scale = np.abs(plain[name]).max()
        assert scale > 0, name
        np.testing.assert_allclose(shared[name], plain[name], atol=2e-5 * scale, err_msg=name)


def test_the_log_says_once_that_prompts_are_not_shared(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rlm_core.model.policy"):
        for architecture in ("gemma3_text", "gemma3_text", "llama"):
            policy = other_model(architecture)
            policy.base += " for the log"
            logprobs(policy)
            logprobs(policy)
    [record] = caplog.records
    assert "random gemma3_text for the log" in record.getMessage()
    assert "without sharing the prompt" in record.getMessage()
    assert "RotatingKVCache" in record.getMessage()


# ------------------------------------------------------------------------------------------------------ quantised bases


@pytest.fixture(scope="module")
def quantised_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in 4 bits."""
    directory = tmp_path_factory.mktemp("quantised") / "model"
    shutil.copytree(tiny_model, directory)
    model, config = load_model(tiny_model)
    nn.quantize(model, group_size=32, bits=4)
    mx.save_safetensors(str(directory / "model.safetensors"), flat(model.parameters()), {"format": "mlx"})
    (directory / "config.json").write_text(json.dumps({**config, "quantization": {"group_size": 32, "bits": 4}}))
    return directory


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", LOW_RANK)
def test_an_adapter_is_trained_on_a_quantised_base(
    judged: Judged,
    quantised_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    packed: bool,
) -> None:
    """On a CPU the base is unpacked, elsewhere its layers stay; the adapter is right for mlx-lm either way."""
    if packed:
        monkeypatch.setattr(loading, "unpacked_on_cpu", lambda model: model)
    report = train_here(judged, quantised_model, tmp_path, train_section(kind, kl_weight=0.1))
    trained = load_policy(str(quantised_model), report.candidate)
    layers = {type(module).__name__ for _, module in trained.model.named_modules()}
    assert ("QuantizedLinear" in layers) == packed
    assert trained.trainable().keys() == expected_names(kind)
    tokens = mx.array([[7, 8, 9, 10, 5, 9, 30]])
    there, _ = mlx_lm.load(str(quantised_model), adapter_path=f"{tmp_path}/adapter")[:2]
    np.testing.assert_allclose(np.array(trained.model(tokens)), np.array(there(tokens)), atol=1e-3)
    untrained = np.array(load_policy(str(quantised_model)).model(tokens))
    assert np.abs(np.array(trained.model(tokens)) - untrained).max() > 0.1


def test_full_training_of_a_quantised_base_is_refused_before_any_work(
    judged: Judged, quantised_model: Path, tmp_path: Path, make_config: MakeConfig
) -> None:
    with pytest.raises(AdapterError, match=r"is quantised.*set train\.adapter\.kind to lora or dora") as refused:
        train_here(judged, quantised_model, tmp_path, train_section("full"))
    assert "\n" not in str(refused.value)
    config = make_config(model={"base": str(quantised_model)}, train={"adapter": {"kind": "full"}})
    with pytest.raises(AdapterError, match="is quantised"):
        check(load_config(config))
    with pytest.raises(AdapterError, match="is quantised"):
        load_policy(str(quantised_model)).add_adapter(SHAPES["full"], seed=0)


def test_dora_on_three_bits_is_refused(quantised_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(quantised_model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config["quantization"]["model.layers.0.mlp.down_proj"] = {"group_size": 32, "bits": 3}
    (model / "config.json").write_text(json.dumps(config))
    check_trainable(str(model), None, SHAPES["lora"])
    with pytest.raises(AdapterError, match=r"3 bits.*set train\.adapter\.kind to lora"):
        check_trainable(str(model), None, SHAPES["dora"])


# ------------------------------------------------------------------------------------------------ incumbents


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "dora"}, "is lora with .* asks for dora with"),
        ({"kind": "full", "rank": None, "scale": None}, "is lora with .* asks for full with layers"),
        ({"rank": 8}, "rank 4.*rank 8"),
        ({"scale": 2.0}, "scale 3, .*scale 2, "),
        ({"layers": 1}, "layers all.*layers 1"),
        ({"modules": MODULES[:1]}, "self_attn.q_proj/mlp.down_proj; .*modules self_attn.q_proj; "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_incumbent_of_another_kind_or_shape_is_refused_with_both(
    judged: Judged, policy: Policy, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    incumbent = made(policy, "lora", tmp_path)
    section = train_section("lora")
    other = section.model_copy(update={"adapter": section.adapter.model_copy(update=change)})
    with pytest.raises(AdapterError, match=complaint):
        train_here(judged, Path(policy.base), tmp_path / "out", other, incumbent)


def test_the_order_of_modules_and_another_word_for_all_layers_are_no_difference(policy: Policy, tmp_path: Path) -> None:
    incumbent = made(policy, "lora", tmp_path)
    check_trainable(policy.base, incumbent, SHAPES["lora"].model_copy(update={"modules": MODULES[::-1], "layers": 2}))


def test_a_first_adapter_of_another_shape_is_refused_before_there_is_a_project(
    policy: Policy, tmp_path: Path, make_config: MakeConfig
) -> None:
    adapter = made(policy, "full", tmp_path / "adapter")
    config = load_config(make_config(model={"base": policy.base, "adapter": adapter.path}))
    with pytest.raises(AdapterError, match=r"is full with .* asks for lora with"):
        check(config)
    assert not (tmp_path / "project").exists()


def test_an_exam_before_the_first_iteration_does_not_hide_what_is_wrong_with_the_first_adapter(
    policy: Policy, tmp_path: Path, make_config: MakeConfig
) -> None:
    adapter = made(policy, "full", tmp_path / "adapter")
    config = load_config(make_config(model={"base": policy.base, "adapter": adapter.path}))
    ledger_path = Project(Path(config.project)).ledger
    with open_ledger(ledger_path):
        assert not is_begun(ledger_path)
    with pytest.raises(AdapterError, match="asks for lora with"):
        check(config)
    with open_ledger(ledger_path) as ledger:
        ledger.begin(Base.of(base_policy(config)), None)
    assert is_begun(ledger_path)
    check(config)
