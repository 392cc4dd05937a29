"""Every method against hand-computed numbers, a slow reference and its finite differences, and what must not matter."""

import functools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.config import AdapterSection, TrainSection
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.model.tensors import flat
from rlm_core.records import Rollout, Verdict
from rlm_core.training.batches import MicroBatch, Sample, experience_from, micro_batch, minibatches
from rlm_core.training.losses import Divisors
from rlm_core.training.methods import METHODS, MethodName
from rlm_core.training.trainer import Trainer, policy_loss
from tests.core import reference
from tests.core.conftest import Judged
from tests.core.reference import Answer, Group

LORA = AdapterSection(rank=4, scale=4.0, modules=("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"))
every = pytest.mark.parametrize("name", METHODS)


class Fixed:
    """A policy that has given log-probabilities."""

    def __init__(self, logprobs: mx.array):
        self.logprobs = logprobs

    def answer_logprobs(self, _prompt: mx.array, _answers: mx.array, _temperature: float) -> mx.array:
        return self.logprobs


def samples_of(group: Group, section: TrainSection, max_tokens: int) -> list[Sample]:
    """The group as the train stage makes it from rollouts and verdicts."""
    rollouts = [
        Rollout(
            problem_id="p",
            index=index,
            seed=0,
            prompt_tokens=(1,),
            tokens=(1,) * len(answer.new),
            logprobs=tuple(answer.behaviour),
            text="",
            finish_reason="stop",
        )
        for index, answer in enumerate(group)
    ]
    verdicts = [
        Verdict(rollout_id=rollout.id, problem_id="p", status="failed", sandbox="none", reward=answer.reward)
        for rollout, answer in zip(rollouts, group, strict=True)
    ]
    [samples] = experience_from(rollouts, verdicts, section.settled_method(), 1.0, max_tokens).groups
    return samples


def padded(rows: list[list[float]], length: int, filling: float = 0.0) -> mx.array:
    return mx.array([row + [filling] * (length - len(row)) for row in rows])


def loss_and_gradient(
    section: TrainSection, groups: list[Group], max_tokens: int
) -> tuple[float, list[list[list[float]]], list[float]]:
    """The minibatch's loss, its gradient for every token of every answer of every group, and clip fractions."""
    loss_fn = policy_loss(section, 1.0)
    lengths = [len(answer.new) for group in groups for answer in group]
    divisors = Divisors(sum(lengths), len(lengths), max_tokens)
    total, gradients, clipped = 0.0, list[list[list[float]]](), list[float]()
    for group in groups:
        batch = micro_batch(samples_of(group, section, max_tokens))
        longest = batch.mask.shape[1]
        batch = replace(
            batch,
            old_logprobs=padded([answer.old for answer in group], longest, -1.0),
            reference_logprobs=padded([answer.base for answer in group], longest, -2.0),
        )

        def of(x: mx.array, batch: MicroBatch = batch) -> tuple[mx.array, dict[str, mx.array]]:
            return loss_fn(Fixed(x), batch, divisors)  # type: ignore[arg-type]

        (value, sums), gradient = mx.value_and_grad(of)(padded([answer.new for answer in group], longest, -3.0))
        total += float(np.array(value))
        clipped.append(float(np.array(sums["clip_fraction"])) / sum(len(answer.new) for answer in group))
        rows = np.array(gradient)
        gradients.append([rows[i, : len(answer.new)].tolist() for i, answer in enumerate(group)])
        assert not (rows * (1 - np.array(batch.mask))).any()
    return total, gradients, clipped


def moved(group: Group, i: int, t: int, by: float) -> Group:
    answer = group[i]
    new = [*answer.new[:t], answer.new[t] + by, *answer.new[t + 1 :]]
    return [*group[:i], replace(answer, new=new), *group[i + 1 :]]


def random_groups(spread: float, seed: int = 0) -> list[Group]:
    """Three groups with answers of 1 to 9 tokens; `spread` is how far the policy has moved, in nats."""
    generator = random.Random(seed)

    def answer() -> Answer:
        old = [-generator.expovariate(1.0) for _ in range(generator.randint(1, 9))]
        return Answer(
            reward=generator.choice([0.0, 0.25, 1.0]),
            new=[o + generator.gauss(0, spread) for o in old],
            old=old,
            behaviour=[o + generator.gauss(0, 0.5) for o in old],
            base=[o + generator.gauss(0, 0.5) for o in old],
        )

    return [[answer() for _ in range(size)] for size in (4, 6, 5)]


# ----------------------------------------------------------------------------------------------- computed by hand

# One group of two answers, of two tokens and one; rewards 1 and 0; limit 4 tokens; old probabilities 0.5 throughout,
# new ones .55, .65 and .25, so ratios 1.1, 1.3 and 0.5.
L55, L65, L25 = math.log(0.55), math.log(0.65), math.log(0.25)
S = math.sqrt(1.1 * 1.3)
BY_HAND: list[tuple[MethodName, dict[str, float], float, list[list[float]]]] = [
    # Advantages 1, -1. -1.1 - 1.28 (cut) + 0.8 (cut), over 3 tokens.
    ("grpo", {}, -1.58 / 3, [[-1.1 / 3, 0], [0]]),
    # Advantages 1/2, -1/2. -0.55 - 0.6 (cut at 1.2) + 0.4 (cut), over 2 answers of length 4.
    ("dr_grpo", {}, -0.75 / 8, [[-0.55 / 8, 0], [0]]),
    # The last round(4 * 0.75) = 3 tokens are punished: the first answer loses 1/3 of 1.2, or 0.4; the second loses
    # nothing. Rewards 0.6, 0; in a group of two, normalising makes 1, -1 of them.
    ("dapo", {"overlong_buffer": 0.75, "overlong_penalty": 1.2}, -1.58 / 3, [[-1.1 / 3, 0], [0]]),
    # With a penalty of 4.5 the first answer gets 1 - 1.5 = -0.5 and is the worse one: advantages -1, 1.
    # 1.1 + 1.3 (a bad token that became likelier is not cut) - 0.5.
    ("dapo", {"overlong_buffer": 0.75, "overlong_penalty": 4.5}, 1.9 / 3, [[1.1 / 3, 1.3 / 3], [-0.5 / 3]]),
    # Ratios sqrt(1.1 * 1.3) = 1.1958 and 0.5. -1.1958 + 0.8 (cut), over 2 answers; each token of the first has half of
    # its answer's gradient.
    ("gspo", {"clip_low": 0.2, "clip_high": 0.28}, (-S + 0.8) / 2, [[-S / 4, -S / 4], [0]]),
    # Weights 1.1, 1.28 (cut), 0.5.
    (
        "cispo",
        {"clip_high": 0.28},
        (-1.1 * L55 - 1.28 * L65 + 0.5 * L25) / 3,
        [[-1.1 / 3, -1.28 / 3], [0.5 / 3]],
    ),
    # Advantages 1 - 0 and 0 - 1.
    ("rloo", {}, (-L55 - L65 + L25) / 8, [[-1 / 8, -1 / 8], [1 / 8]]),
    # Advantages 1/2, -1/2.
    ("reinforce", {}, (-L55 - L65 + L25) / 16, [[-1 / 16, -1 / 16], [1 / 16]]),
]


@pytest.mark.parametrize(
    ("name", "settings", "loss", "gradient"), BY_HAND, ids=[f"{row[0]}-{i}" for i, row in enumerate(BY_HAND)]
)
def test_loss_and_gradient_by_hand(
    name: MethodName, settings: dict[str, Any], loss: float, gradient: list[list[float]]
) -> None:
    half = math.log(0.5)
    group = [
        Answer(1.0, [L55, L65], [half, half], [half, half], [half, half]),
        Answer(0.0, [L25], [half], [half], [half]),
    ]
    total, [found], _ = loss_and_gradient(TrainSection(method=name, **settings), [group], max_tokens=4)
    assert total == pytest.approx(loss, rel=1e-5)
    for row, expected in zip(found, gradient, strict=True):
        assert row == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_every_method_was_computed_by_hand() -> None:
    assert {row[0] for row in BY_HAND} == set(METHODS) == set(get_args(MethodName))


# ------------------------------------------------------------------------------------------------------ slow reference


@every
@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_loss_agrees_with_a_slow_reference(name: MethodName, kl_weight: float, seed: int) -> None:
    groups = random_groups({"gspo": 5e-4, "cispo": 1.5}.get(name, 0.3), seed)
    total, _, clipped = loss_and_gradient(TrainSection(method=name, kl_weight=kl_weight), groups, max_tokens=9)
    assert total == pytest.approx(reference.loss(name, groups, 9, kl_weight), rel=2e-5, abs=2e-6)
    if name in reference.BOUNDS:
        assert 0 < np.mean(clipped) < 1, "the comparison should see both sides of the clip"


@every
def test_gradient_agrees_with_finite_differences_of_the_reference(name: MethodName) -> None:
    groups = random_groups({"gspo": 5e-4, "cispo": 1.5}.get(name, 0.3))
    _, gradients, _ = loss_and_gradient(TrainSection(method=name, kl_weight=0.3), groups, max_tokens=9)
    step = 1e-6
    for g, group in enumerate(groups):
        for i, answer in enumerate(group):
            for t in range(len(answer.new)):
                around = [
                    reference.loss(
                        name, [*groups[:g], moved(group, i, t, by), *groups[g + 1 :]], 9, 0.3, constant=groups
                    )
                    for by in (step, -step)
                ]
                slope = (around[0] - around[1]) / (2 * step)
                assert gradients[g][i][t] == pytest.approx(slope, rel=2e-4, abs=2e-7), (g, i, t)


@every
def test_a_group_of_equal_rewards_has_exactly_no_gradient(name: MethodName) -> None:
    groups = [[replace(answer, reward=0.25) for answer in group] for group in random_groups(0.3)]
    total, gradients, _ = loss_and_gradient(TrainSection(method=name), groups, max_tokens=9)
    assert total == 0
    assert not any(value for group in gradients for row in group for value in row)


# --------------------------------------------------------------------------------------------------- settings and parts


def test_grpo_and_dapo_differ_by_the_penalty_for_length_alone() -> None:
    assert replace(METHODS["dapo"], overlong=None) == METHODS["grpo"]


def test_length_is_punished_only_where_rewards_differ() -> None:
    dapo = METHODS["dapo"]
    assert not dapo.group_advantages([0.0, 0.0, 0.0], [20, 10, 5], max_tokens=20).any()
    # The last 4 of 20 tokens: the long answer keeps 1 - 0.5, the short ones 1 and 0.
    np.testing.assert_allclose(
        dapo.group_advantages([1.0, 1.0, 0.0], [20, 16, 5], max_tokens=20),
        METHODS["grpo"].group_advantages([0.5, 1.0, 0.0], [1, 1, 1], max_tokens=20),
    )


@pytest.mark.parametrize("name", ["rloo", "reinforce"])
@pytest.mark.parametrize("setting", ["clip_low", "clip_high"])
def test_a_bound_is_refused_by_methods_that_clip_nothing(name: MethodName, setting: str) -> None:
    with pytest.raises(ValueError, match=f"does not use {setting}"):
        TrainSection.model_validate({"method": name, setting: 0.2})


@pytest.mark.parametrize("name", [name for name in METHODS if name != "dapo"])
def test_a_penalty_for_length_is_refused_by_all_but_dapo(name: MethodName) -> None:
    with pytest.raises(ValueError, match="does not use overlong_buffer"):
        TrainSection(method=name, overlong_buffer=0.5)


def test_settings_take_the_place_of_the_methods_own() -> None:
    method = TrainSection(method="dapo", clip_high=0.5, overlong_buffer=0.4).settled_method()
    assert method.clip is not None
    assert method.overlong is not None
    assert (method.clip.low, method.clip.high) == (0.2, 0.5)
    assert (method.overlong.buffer, method.overlong.penalty) == (0.4, 0.5)


# ------------------------------------------------------------------------------------------------ with the tiny model


def lora_policy(model: Path) -> Policy:
    policy = load_policy(str(model))
    policy.add_adapter(LORA, seed=1)
    return policy


def shake(policy: Policy, seed: int, size: float) -> None:
    """Move the adapter's weights at random."""
    mx.random.seed(seed)
    noise = [(name, value + size * mx.random.normal(value.shape)) for name, value in policy.trainable().items()]
    policy.model.load_weights(noise, strict=False)


def gradient_of(
    name: MethodName, judged: Judged, model: Path, micro: int = 6, pad: int = 0, shuffle: bool = False
) -> dict[str, np.ndarray]:
    """The gradient of one minibatch of all useful groups, at a policy that has moved since the answers were scored."""
    section = TrainSection(method=name, kl_weight=0.1, rescore_above=0, adapter=LORA)
    experience = experience_from(judged.rollouts, judged.verdicts, section.settled_method(), 1.0, 20)
    policy = lora_policy(model)
    shake(policy, seed=1, size=0.02)
    trainer = Trainer(policy, section, experience, Path("unused"), "unused")
    groups = [list(group) for group in experience.useful]
    batches = [micro_batch(group[i : i + micro], pad) for group in groups for i in range(0, len(group), micro)]
    if shuffle:
        batches = [micro_batch(batch.samples[::-1]) for batch in batches[::-1]]
    [batches] = trainer.scored([batches])
    shake(policy, seed=2, size=0.01)
    divisors = trainer.divisors(batches)
    _, gradient, figures = trainer.accumulate(batches, policy_loss(section, 1.0), divisors)
    assert figures["clip_fraction"] < 0.9 * divisors.tokens, "a clip that cuts everything would hide the rest"
    return {key: np.array(value) for key, value in flat(gradient).items()}


@pytest.fixture(scope="module")
def usual_gradient(judged: Judged, tiny_model: Path) -> Callable[[MethodName], dict[str, np.ndarray]]:
    """That of each method, worked out once."""
    return functools.cache(lambda name: gradient_of(name, judged, tiny_model))


@pytest.mark.parametrize(
    "change", [{"micro": 2}, {"pad": 9}, {"shuffle": True}], ids=["micro-batch size", "padding", "order"]
)
@every
def test_what_does_not_change_the_gradient(
    name: MethodName,
    change: dict[str, Any],
    judged: Judged,
    tiny_model: Path,
    usual_gradient: Callable[[MethodName], dict[str, np.ndarray]],
) -> None:
    usual, changed = usual_gradient(name), gradient_of(name, judged, tiny_model, **change)
    assert usual.keys() == changed.keys()
    scale = max(np.abs(value).max() for value in usual.values())
    assert scale > 0
    for key in usual:
        np.testing.assert_allclose(changed[key], usual[key], atol=1e-4 * scale, err_msg=key)


def test_a_loss_is_divided_by_what_its_whole_minibatch_has(judged: Judged, tiny_model: Path) -> None:
    section = TrainSection(adapter=LORA)
    experience = experience_from(judged.rollouts, judged.verdicts, section.settled_method(), 1.0, max_tokens=500)
    trainer = Trainer(lora_policy(tiny_model), section, experience, Path("unused"), "unused")
    group = experience.useful[0]
    tokens = sum(len(sample.rollout.tokens) for sample in group)
    assert trainer.divisors([micro_batch(group[:4]), micro_batch(group[4:])]) == Divisors(tokens, len(group), 500)


@every
def test_a_step_moves_the_adapter_and_nothing_else(
    name: MethodName, judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    section = TrainSection(method=name, learning_rate=1e-2, minibatch=12, adapter=LORA)
    experience = experience_from(judged.rollouts, judged.verdicts, section.settled_method(), 1.0, 20)
    policy = lora_policy(tiny_model)
    before = {key: np.array(value) for key, value in flat(policy.model.parameters()).items()}
    metrics = Trainer(policy, section, experience, tmp_path, "it").run(minibatches(experience.useful, section, seed=0))
    after = {key: np.array(value) for key, value in flat(policy.model.parameters()).items()}
    changed = {key for key in before if not np.array_equal(before[key], after[key])}
    assert changed == {key for key in before if key.endswith(("lora_a", "lora_b"))}
    assert all(step.applied and step.grad_norm > 0 for step in metrics)
