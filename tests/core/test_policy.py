"""Loading, sampling and scoring, with the tiny model."""

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.errors import AdapterError, InfrastructureFault, ModelError
from rlm_core.model.adapters import read_adapter
from rlm_core.model.decoding import Request
from rlm_core.model.device import device_policy, device_policy_to_train
from rlm_core.model.draws import Sampling
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.model.tensors import read_tensors
from tests import tiny
from tests.samples.adapters import LORA, trained_adapter


def requests(policy: Policy, count: int) -> list[Request]:
    prompts = [policy.prompt_tokens(problem.prompt) for problem in tiny.problems(3)]
    return [Request(prompts[i // 4 % 3], seed=100 + i) for i in range(count)]


def test_an_answer_depends_on_its_seed_and_not_on_its_company(policy: Policy) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=16)
    asked = requests(policy, 12)
    together = policy.sample(asked, sampling, batch_size=12)
    few_at_a_time = policy.sample(asked, sampling, batch_size=3)
    alone = policy.sample(asked[7:8], sampling, batch_size=1)
    assert [c.tokens for c in together] == [c.tokens for c in few_at_a_time]
    assert together[7].tokens == alone[0].tokens
    assert len({tuple(c.tokens) for c in together}) > 1


def test_temperature_zero_takes_the_most_likely_token(policy: Policy) -> None:
    [request] = requests(policy, 1)
    [greedy] = policy.sample([request], Sampling(temperature=0.0, max_tokens=8), batch_size=1)
    tokens = list(request.prompt_tokens)
    for token in greedy.tokens:
        assert token == mx.argmax(policy.model(mx.array([tokens]))[0, -1]).item()
        tokens.append(token)


def test_drawn_tokens_follow_the_models_distribution(policy: Policy) -> None:
    prompt = policy.prompt_tokens("x")
    probabilities = np.array(mx.softmax(policy.model(mx.array([prompt]))[0, -1] / 5.0))
    asked = [Request(prompt, seed) for seed in range(2_000)]
    drawn = [c.tokens[0] for c in policy.sample(asked, Sampling(temperature=5.0, max_tokens=1), batch_size=500)]
    counts = np.bincount(drawn, minlength=len(probabilities))
    expected = 2_000 * probabilities
    often = expected > 20
    # Chi-square over the tokens with enough draws: its mean is the number of cells, its variance twice that.
    statistic = (((counts - expected) ** 2) / expected)[often].sum()
    assert often.sum() >= 8
    assert statistic < often.sum() + 4 * np.sqrt(2 * often.sum())


@pytest.mark.parametrize("limits", [{"top_k": 1}, {"top_p": 1e-6}])
def test_top_k_and_top_p_cut_the_distribution(policy: Policy, limits: dict[str, Any]) -> None:
    asked = requests(policy, 6)
    cut = policy.sample(asked, Sampling(temperature=1.0, max_tokens=6, **limits), batch_size=6)
    greedy = policy.sample(asked, Sampling(temperature=0.0, max_tokens=6), batch_size=6)
    assert [c.tokens for c in cut] == [c.tokens for c in greedy]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_kept_logprobs_are_those_of_the_sampled_tokens(policy: Policy, temperature: float) -> None:
    [request] = requests(policy, 1)
    [answer] = policy.sample([request], Sampling(temperature, max_tokens=10), batch_size=1)
    tokens = mx.array([[*request.prompt_tokens, *answer.tokens]])
    logits = policy.model(tokens)[0, len(request.prompt_tokens) - 1 : -1] / temperature
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    expected = [logprobs[i, token].item() for i, token in enumerate(answer.tokens)]
    assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_the_stop_token_is_kept_and_ends_the_answer(policy: Policy) -> None:
    answers = policy.sample(requests(policy, 12), Sampling(1.0, max_tokens=30), batch_size=12)
    stopped = [answer for answer in answers if answer.finish_reason == "stop"]
    assert stopped
    for answer in stopped:
        assert answer.tokens[-1] in policy.end_tokens
        assert not set(answer.tokens[:-1]) & set(policy.end_tokens)
        assert "<|end|>" not in policy.text(answer.tokens)


def test_every_end_token_of_the_configs_stops_an_answer(tiny_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    newline = load_policy(str(tiny_model)).tokenizer.encode("\n", add_special_tokens=False)[0]
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [newline]}))
    policy = load_policy(str(model))
    assert newline in policy.end_tokens
    assert len(policy.end_tokens) == 2


def test_shared_prompt_scoring_equals_the_plain_forward_pass(policy: Policy) -> None:
    prompt = mx.array([policy.prompt_tokens("Write something.")])
    answers = mx.array([[5, 9, 30, 7], [12, 40, 41, 0]])
    scored = policy.answer_logprobs(prompt, answers, temperature=0.7)
    rows = mx.concatenate([mx.broadcast_to(prompt, (2, prompt.shape[1])), answers], axis=1)
    logits = policy.model(rows)[:, prompt.shape[1] - 1 : -1] / 0.7
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    expected = mx.take_along_axis(logprobs, answers[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(np.array(scored), np.array(expected), atol=2e-5)


def test_padding_does_not_change_an_answers_logprobs(policy: Policy) -> None:
    prompt = mx.array([policy.prompt_tokens("Write something.")])
    short = policy.answer_logprobs(prompt, mx.array([[5, 9]]))
    padded = policy.answer_logprobs(prompt, mx.array([[5, 9, 0, 0, 0]]))
    np.testing.assert_allclose(np.array(padded)[:, :2], np.array(short), atol=1e-5)


def test_adapter_off_is_the_base_policy(policy: Policy, tmp_path: Path) -> None:
    prompt, answers = mx.array([policy.prompt_tokens("x")]), mx.array([[5, 9, 30]])
    base = np.array(policy.answer_logprobs(prompt, answers))
    trained_adapter(policy, tmp_path)
    adapted = np.array(policy.answer_logprobs(prompt, answers))
    with policy.adapter_off():
        off = np.array(policy.answer_logprobs(prompt, answers))
    np.testing.assert_array_equal(off, base)
    assert np.abs(adapted - base).max() > 1e-3
    np.testing.assert_array_equal(np.array(policy.answer_logprobs(prompt, answers)), adapted)


def test_an_adapter_for_another_base_is_refused_with_both_names(
    policy: Policy, tiny_model: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_model, tmp_path / "other")
    weights = read_tensors(other / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.01
    mx.save_safetensors(str(other / "model.safetensors"), weights)
    adapter = trained_adapter(policy, tmp_path / "adapter")
    with pytest.raises(AdapterError) as refused:
        load_policy(str(other), adapter)
    assert policy.base in str(refused.value)
    assert str(other) in str(refused.value)


def test_a_damaged_adapter_is_refused(policy: Policy, tiny_model: Path, tmp_path: Path) -> None:
    adapter = trained_adapter(policy, tmp_path)
    weights = tmp_path / "adapters.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(AdapterError, match="damaged"):
        load_policy(str(tiny_model), adapter)


@pytest.mark.parametrize("missing", ["adapter_config.json", "adapters.safetensors"])
def test_an_incomplete_adapter_is_refused(policy: Policy, tmp_path: Path, missing: str) -> None:
    trained_adapter(policy, tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(AdapterError, match=missing):
        read_adapter(tmp_path)


def test_a_module_that_is_nowhere_in_the_model_is_refused(policy: Policy) -> None:
    with pytest.raises(AdapterError, match=r"self_attn\.nothing"):
        policy.add_adapter(LORA.model_copy(update={"modules": ("self_attn.nothing",)}), seed=0)


@pytest.mark.parametrize("base", ["/no/such/model", "./nothing", "nonsense"])
def test_a_model_that_does_not_exist_is_one_clear_error(base: str) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        load_policy(base)


def test_a_directory_that_is_no_model_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        load_policy(str(tmp_path))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[malloc] Unable to allocate 8589934592 bytes."),
        RuntimeError("[metal::malloc] Attempting to allocate 9 bytes which is greater than the maximum allowed buffer"),
        RuntimeError("[METAL] Command buffer execution failed: Insufficient Memory (00000008)"),
    ],
    ids=["python", "cpu", "metal", "metal-command"],
)
def test_running_out_of_memory_is_worth_another_try_with_nothing_kept_loaded(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with device_policy(str(tiny_model), None) as kept:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(Policy, "sample", fail)
        with (
            pytest.raises(InfrastructureFault, match=r"out of memory .*rollout\.batch_size and train\.micro_batch"),
            device_policy(str(tiny_model), None) as policy,
        ):
            assert policy is kept
            policy.sample([], Sampling(1.0, 1), 1)
    with device_policy(str(tiny_model), None) as policy:
        assert policy is not kept


def test_a_model_that_does_not_fit_in_memory_is_not_called_broken(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("[malloc] Unable to allocate 8589934592 bytes.")

    monkeypatch.setattr("rlm_core.model.loading.load_model", fail)
    with pytest.raises(InfrastructureFault, match="out of memory"), device_policy_to_train(str(tiny_model), None):
        pass


def test_other_errors_at_the_device_stay_what_they_are(tiny_model: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug"), device_policy(str(tiny_model), None):
        raise RuntimeError("a bug")
