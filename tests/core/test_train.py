"""Training steps, with the tiny model: real rollouts, real verdicts, real gradients."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core import progress
from rlm_core.config import RolloutSection, VerifySection
from rlm_core.errors import AdapterError, Interrupted, StageFailed
from rlm_core.files import sha256_of, write_jsonl
from rlm_core.judging import judge_rollouts
from rlm_core.model.loading import load_policy
from rlm_core.model.tensors import read_tensors
from rlm_core.records import AdapterRef, FileRef, PolicyRef, StageResult, TrainReport
from rlm_core.rollout import sample_rollouts
from rlm_core.train import VERSION, run
from rlm_core.training.batches import experience_from
from rlm_core.training.checkpoint import read_checkpoint, write_checkpoint
from rlm_core.training.methods import METHODS
from tests import tiny
from tests.core.conftest import ROLLOUT, Judged
from tests.samples.training import LORA, SECTION, train_here, weights


def test_training_raises_the_pass_rate(tiny_model: Path, tmp_path: Path) -> None:
    problems = [tiny.problem(increment=2, variant=i) for i in range(6)]
    by_id = {problem.id: problem for problem in problems}

    def judged_by(adapter: AdapterRef | None, seed: int) -> Judged:
        policy = load_policy(str(tiny_model), adapter)
        rollouts = sample_rollouts(policy, problems, RolloutSection(group_size=8, max_tokens=20), seed)
        return Judged(problems, rollouts, judge_rollouts(rollouts, by_id, VerifySection()))

    def pass_rate(judged: Judged) -> float:
        return float(np.mean([verdict.passed for verdict in judged.verdicts]))

    report = train_here(judged_by(None, seed=1), tiny_model, tmp_path, learning_rate=5e-3, epochs=2)
    before, after = pass_rate(judged_by(None, seed=2)), pass_rate(judged_by(report.candidate, seed=2))
    assert after > before + 0.2, (before, after)


def test_only_adapter_weights_are_trainable_and_the_base_does_not_move(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    before = (tiny_model / "model.safetensors").read_bytes()
    report = train_here(judged, tiny_model, tmp_path)
    saved = weights(report.candidate)
    assert {name.rsplit(".", 1)[-1] for name in saved} == {"lora_a", "lora_b"}
    assert all(np.abs(value).max() > 0 for name, value in saved.items() if name.endswith("lora_b"))
    assert {name.split(".layers.")[1].split(".", 1)[1].rsplit(".", 1)[0] for name in saved} == set(LORA.modules)
    assert (tiny_model / "model.safetensors").read_bytes() == before


def test_number_of_layers_is_honoured_from_the_last(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    report = train_here(judged, tiny_model, tmp_path, adapter=LORA.model_copy(update={"layers": 1}))
    assert {name.split(".layers.")[1].split(".")[0] for name in weights(report.candidate)} == {"1"}


def test_groups_with_equal_rewards_leave_no_candidate(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    equal = Judged(judged.problems, judged.rollouts, [v.model_copy(update={"reward": 0.5}) for v in judged.verdicts])
    report = train_here(equal, tiny_model, tmp_path)
    assert report.candidate is None
    assert (report.groups, report.useful_groups, report.reward_mean) == (6, 0, 0.5)


def test_rollouts_lost_to_the_machinery_are_left_out_of_their_group(judged: Judged) -> None:
    lost = [v.model_copy(update={"status": "infrastructure"}) for v in judged.verdicts[:2]] + judged.verdicts[2:]
    groups = experience_from(judged.rollouts, lost, METHODS["grpo"], 1.0, 20).groups
    assert [len(group) for group in groups] == [4, 6, 6, 6, 6, 6]
    assert sum(sample.advantage for sample in groups[0]) == pytest.approx(0)


def test_the_same_inputs_give_the_same_adapter(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    first = train_here(judged, tiny_model, tmp_path / "a")
    second = train_here(judged, tiny_model, tmp_path / "b")
    assert first.candidate is not None
    assert second.candidate is not None
    assert first.candidate.sha256 == second.candidate.sha256


def test_interrupted_training_continues_to_the_same_adapter(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    """A checkpoint after each optimizer step."""
    straight = train_here(judged, tiny_model, tmp_path / "straight")
    assert straight.steps >= 3

    def stop_after_two(step: progress.Progress) -> None:
        if step.done == 2:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop_after_two):
        train_here(judged, tiny_model, tmp_path / "resumed")
    taken: list[int] = []
    with progress.listening(lambda step: taken.append(step.done)):
        resumed = train_here(judged, tiny_model, tmp_path / "resumed")
    assert min(taken) == 3
    assert straight.candidate is not None
    assert resumed.candidate is not None
    assert resumed.candidate.sha256 == straight.candidate.sha256
    steps = [json.loads(line)["step"] for line in (tmp_path / "resumed" / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, straight.steps + 1))


def test_what_ends_the_stage_after_the_last_step_makes_it_repeat_none(
    judged: Judged, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = FileRef.of(write_jsonl(tmp_path / "rollouts.jsonl", judged.rollouts))
    verdicts = FileRef.of(write_jsonl(tmp_path / "verdicts.jsonl", judged.verdicts))
    learner = PolicyRef(base=str(tiny_model), fingerprint="f")
    taken: list[int] = []

    def stage() -> StageResult:
        with progress.listening(lambda step: taken.append(step.done) if step.done else None):
            return run(tmp_path, learner, [rollouts], [verdicts], SECTION, 0.0, ROLLOUT, 3, 1)

    def kill(*_: object) -> None:
        raise Interrupted("now")

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr("rlm_core.train.write_record", kill)
        stage()
    steps = len(taken)
    first = sha256_of(tmp_path / "adapter" / "adapters.safetensors")
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_text("{\n")
    assert stage().files["adapters.safetensors"].sha256 == first
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
    assert steps >= 3
    assert taken == list(range(1, steps + 1))


@pytest.mark.parametrize("harm", ["bit", "name", "cut"])
def test_after_a_damaged_checkpoint_training_starts_over_and_says_so(
    judged: Judged, tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    def stop(step: progress.Progress) -> None:
        if step.done == 2:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop):
        train_here(judged, tiny_model, tmp_path)
    checkpoint = tmp_path / "checkpoint.safetensors"
    content = bytearray(checkpoint.read_bytes())
    content[-9] ^= 64
    named = checkpoint.read_bytes().replace(b'"weights.', b'"heights.', 1)
    checkpoint.write_bytes({"bit": bytes(content), "name": named, "cut": bytes(content[:-9])}[harm])
    again = train_here(judged, tiny_model, tmp_path)
    assert f"train starts over: {checkpoint} is damaged: " in caplog.text
    straight = train_here(judged, tiny_model, tmp_path / "straight")
    assert again.candidate is not None
    assert straight.candidate is not None
    assert again.candidate.sha256 == straight.candidate.sha256


def test_no_flipped_bit_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    arrays = {"weights.a": mx.ones((2, 3)), "optimizer.step": mx.array(3, dtype=mx.uint64)}
    information = {"identity": "i", "metrics": "m"}
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, arrays, information)
    assert read_checkpoint(path)[1] == information
    whole = path.read_bytes()
    for bit in range(0, len(whole) * 8, 11):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises((RuntimeError, ValueError)):
            read_checkpoint(path)


@pytest.mark.parametrize("other", ["a setting", "the rewards", "the version"])
def test_a_checkpoint_of_other_training_is_not_continued(
    judged: Judged, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    def stop(step: progress.Progress) -> None:
        if step.done == 1:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop):
        if other == "a setting":
            train_here(judged, tiny_model, tmp_path, learning_rate=1e-4)
        elif other == "the version":
            with monkeypatch.context() as patch:
                patch.setattr("rlm_core.train.VERSION", VERSION - 1)
                train_here(judged, tiny_model, tmp_path)
        else:
            turned = [verdict.model_copy(update={"reward": 1 - verdict.reward}) for verdict in judged.verdicts]
            train_here(Judged(judged.problems, judged.rollouts, turned), tiny_model, tmp_path)
    taken: list[int] = []
    with progress.listening(lambda step: taken.append(step.done) if step.done else None):
        mixed = train_here(judged, tiny_model, tmp_path)
    assert taken[0] == 1
    straight = train_here(judged, tiny_model, tmp_path / "straight")
    assert mixed.candidate is not None
    assert straight.candidate is not None
    assert mixed.candidate.sha256 == straight.candidate.sha256


def test_the_next_iteration_goes_on_from_adapter_and_optimizer(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    first = train_here(judged, tiny_model, tmp_path / "1")
    second = train_here(judged, tiny_model, tmp_path / "2", learner=first.candidate)
    assert second.candidate is not None

    def step(report: TrainReport) -> int:
        assert report.candidate is not None
        return int(np.array(read_tensors(Path(report.candidate.path, "optimizer.safetensors"))["step"]))

    assert step(second) == first.steps + second.steps
    moved = [
        np.abs(a - b).max()
        for a, b in zip(weights(first.candidate).values(), weights(second.candidate).values(), strict=True)
    ]
    assert 0 < max(moved) < 1


def test_the_optimizers_moments_come_from_the_incumbent_and_matter(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    first = train_here(judged, tiny_model, tmp_path / "1")
    going_on = train_here(judged, tiny_model, tmp_path / "2", learner=first.candidate)
    again = train_here(judged, tiny_model, tmp_path / "3", learner=first.candidate)
    assert first.candidate is not None
    Path(first.candidate.path, "optimizer.safetensors").unlink()
    afresh = train_here(judged, tiny_model, tmp_path / "4", learner=first.candidate)
    digests = [report.candidate.sha256 for report in (going_on, again, afresh) if report.candidate]
    assert digests[0] == digests[1] != digests[2]


def test_an_optimizers_state_that_is_damaged_is_named(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    first = train_here(judged, tiny_model, tmp_path / "1")
    assert first.candidate is not None
    state = Path(first.candidate.path, "optimizer.safetensors")
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(AdapterError, match=r"optimizer\.safetensors is damaged"):
        train_here(judged, tiny_model, tmp_path / "2", learner=first.candidate)


def test_steps_that_are_not_finite_are_skipped_and_stop_the_run(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    broken = [r.model_copy(update={"logprobs": tuple(float("nan") for _ in r.logprobs)}) for r in judged.rollouts]
    with pytest.raises(StageFailed, match="not finite"):
        train_here(Judged(judged.problems, broken, judged.verdicts), tiny_model, tmp_path)
    recorded = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [step["applied"] for step in recorded] == [False, False, False]


def test_a_skipped_step_does_not_keep_training_from_going_on(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    broken = [r.model_copy(update={"logprobs": (float("nan"),) * len(r.tokens)}) for r in judged.rollouts[:12]]
    mixed = Judged(judged.problems, [*broken, *judged.rollouts[12:]], judged.verdicts)

    def stop_late(step: progress.Progress) -> None:
        if step.done == step.total - 1:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop_late):
        train_here(mixed, tiny_model, tmp_path, minibatch=6)
    report = train_here(mixed, tiny_model, tmp_path, minibatch=6)
    applied = [json.loads(line)["applied"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(applied) == report.steps
    assert applied.count(False) in (1, 2)
    assert report.candidate is not None


def test_metrics_say_what_a_step_was_made_of(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    """One step with everything in it; one group of six teaches nothing, and some answers were cut off."""
    useless = judged.problems[0].id
    verdicts = [v.model_copy(update={"reward": 0.5}) if v.problem_id == useless else v for v in judged.verdicts]
    cut = {rollout.id for rollout in judged.rollouts[10:20]}
    rollouts = [r.model_copy(update={"finish_reason": "length"}) if r.id in cut else r for r in judged.rollouts]
    train_here(Judged(judged.problems, rollouts, verdicts), tiny_model, tmp_path, minibatch=1000)
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    step = json.loads(line)
    rewards: dict[str, list[float]] = {problem.id: [] for problem in judged.problems}
    for verdict in verdicts:
        rewards[verdict.problem_id].append(verdict.reward)
    useful = {problem for problem, paid in rewards.items() if len(set(paid)) > 1}
    assert useless not in useful
    trained = [r for r in rollouts if r.problem_id in useful]
    passed = [v.passed for v in verdicts if v.problem_id in useful]
    paid = [reward for problem in useful for reward in rewards[problem]]
    logprobs = [logprob for r in trained for logprob in r.logprobs]
    assert step["useful_share"] == pytest.approx(len(useful) / 6)
    assert (step["rollouts"], step["tokens"]) == (len(trained), len(logprobs))
    assert step["reward_mean"] == pytest.approx(np.mean(paid))
    assert step["reward_std"] == pytest.approx(np.std(paid))
    assert step["pass_rate"] == pytest.approx(np.mean(passed))
    assert step["answer_length_mean"] == pytest.approx(len(logprobs) / len(trained))
    assert step["truncated_share"] == pytest.approx(len([r for r in trained if r.id in cut]) / len(trained))
    assert step["entropy"] == pytest.approx(-np.mean(logprobs), rel=1e-4)
    assert 0 < step["pass_rate"] < 1
    assert 0 < step["truncated_share"] < 1


def test_kl_penalty_is_zero_at_the_start_and_felt_later(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    train_here(judged, tiny_model, tmp_path / "kl", kl_weight=0.5, epochs=2)
    kl = [json.loads(line)["kl"] for line in (tmp_path / "kl" / "metrics.jsonl").read_text().splitlines()]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > 1e-5


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1e-3},
        {"weight_decay": 0.1},
        {"max_grad_norm": 1e-3},
        {"minibatch": 36},
        {"epochs": 2},
        {"warmup_steps": 2},
        {"method": "dr_grpo"},
        {"clip_low": 1e-6, "clip_high": 1e-6},
        {"betas": (0.5, 0.9)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_optimizer_setting_has_an_effect(
    judged: Judged, tiny_model: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    usual = train_here(judged, tiny_model, tmp_path / "usual")
    changed = train_here(judged, tiny_model, tmp_path / "changed", **change)
    assert usual.candidate is not None
    assert changed.candidate is not None
    assert usual.candidate.sha256 != changed.candidate.sha256


def test_shuffled_rewards_are_the_same_rewards_dealt_to_other_rollouts(judged: Judged) -> None:
    def advantages(seed: int | None) -> list[list[float]]:
        method = METHODS["grpo"]
        groups = experience_from(judged.rollouts, judged.verdicts, method, 1.0, ROLLOUT.max_tokens, seed).groups
        return [[sample.advantage for sample in group] for group in groups]

    earned, dealt = advantages(None), advantages(1)
    assert [sorted(group) for group in dealt] == [sorted(group) for group in earned]
    assert dealt != earned
    assert dealt == advantages(1) != advantages(2)


def test_shuffled_rewards_teach_another_adapter(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    earned = weights(train_here(judged, tiny_model, tmp_path / "a").candidate)
    dealt = weights(train_here(judged, tiny_model, tmp_path / "b", shuffle_rewards=True).candidate)
    assert any(not np.array_equal(earned[name], dealt[name]) for name in earned)
