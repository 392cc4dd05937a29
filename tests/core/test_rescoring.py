"""The sampler's log-probabilities are used where they are the trainer's, and only there."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.config import TrainSection
from rlm_core.model.policy import Policy
from rlm_core.training import rescoring
from rlm_core.training.batches import MicroBatch, Rehearsed, experience_from, minibatches
from rlm_core.training.methods import METHODS
from tests.core.conftest import Judged
from tests.samples.training import train_here, weights

LIMIT = TrainSection().rescore_above


def rollouts_of(steps: list[list[MicroBatch]]) -> list[MicroBatch]:
    return [batch for step in steps for batch in step]


@pytest.fixture
def steps(judged: Judged) -> list[list[MicroBatch]]:
    experience = experience_from(judged.rollouts, judged.verdicts, METHODS["grpo"], 1.0, 20)
    return minibatches(experience.useful, TrainSection(minibatch=12, micro_batch=4), seed=0)


@pytest.fixture
def scored_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many answers each forward pass scored."""
    rows: list[int] = []
    score = Policy.answer_logprobs

    def counting(self: Policy, prompt: mx.array, answers: mx.array, *given: Any, **named: Any) -> mx.array:
        rows.append(answers.shape[0])
        return score(self, prompt, answers, *given, **named)

    monkeypatch.setattr(Policy, "answer_logprobs", counting)
    return rows


def test_own_rollouts_are_not_scored_again_but_for_one_answer_a_step(
    policy: Policy, steps: list[list[MicroBatch]], scored_again: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    scored = rescoring.scored(policy, steps, 1.0, LIMIT, with_base=False)
    assert scored_again == [1] * len(steps)
    assert not caplog.records
    for before, after in zip(rollouts_of(steps), rollouts_of(scored), strict=True):
        assert after.old_logprobs is not None
        assert np.array_equal(np.array(after.old_logprobs), np.array(before.behaviour_logprobs))
    longest = [max(len(sample.rollout.tokens) for sample in step[0].samples) for step in steps]
    assert [step[0].compared for step in scored] == longest
    assert all(0 < rescoring.mismatch(step) < 1e-4 for step in scored)


@pytest.mark.parametrize("limit", [0, LIMIT])
def test_answers_of_another_sampler_are_all_scored_again_with_the_reason(
    policy: Policy,
    steps: list[list[MicroBatch]],
    scored_again: list[int],
    caplog: pytest.LogCaptureFixture,
    limit: float,
) -> None:
    last = steps[-1][0]
    steps[-1][0] = replace(last, behaviour_logprobs=last.behaviour_logprobs - 0.01 * last.mask)
    with caplog.at_level(logging.WARNING):
        scored = rescoring.scored(policy, steps, 1.0, limit, with_base=False)
    assert scored_again[-len(rollouts_of(scored)) :] == [len(batch.samples) for batch in rollouts_of(scored)]
    assert ("differ by 0.01 nats (train.rescore_above is 0.001)" in caplog.text) == (limit > 0)
    for batch in rollouts_of(scored):
        own = policy.answer_logprobs(batch.prompt, batch.answers)
        np.testing.assert_allclose(np.array(batch.old_logprobs), np.array(own), atol=1e-5)
    first = scored[-1][0]
    assert first.mismatch / first.compared == pytest.approx(0.01, rel=0.01)
    assert rescoring.mismatch(scored[0]) < 1e-4


def test_both_ways_train_alike(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    trusted = weights(train_here(judged, tiny_model, tmp_path / "a").candidate)
    rescored = weights(train_here(judged, tiny_model, tmp_path / "b", rescore_above=0.0).candidate)
    moved = max(np.abs(value).max() for name, value in trusted.items() if name.endswith("lora_b"))
    for name in trusted:
        np.testing.assert_allclose(trusted[name], rescored[name], atol=0.02 * moved, err_msg=name)


def test_rehearsed_answers_alone_need_no_scoring(policy: Policy, scored_again: list[int]) -> None:
    old = Rehearsed(mx.array([[1]]), mx.array([[2]]))
    assert rescoring.scored(policy, [[old]], 1.0, LIMIT, with_base=True) == [[old]]
    assert scored_again == []
