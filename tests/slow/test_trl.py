"""Losses and their gradients against those of TRL, called on the same numbers without a model.

TRL's trainers take log-probabilities from a method of their own, so an object that has this method and the settings
that the loss reads is trainer enough. Both sides work in their own float32.
"""

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.training.advantages import overlong_penalties
from rlm_core.training.losses import (
    Aggregate,
    ClipRange,
    Divisors,
    ScoredAnswers,
    TokenLosses,
    clipped_surrogate,
    constant_length,
    importance_weights,
    k3_divergence,
    sequence_mean,
    token_mean,
)
from rlm_core.training.methods import METHODS

torch = pytest.importorskip("torch", reason="the 'reference' extra is not installed: NOT compared with TRL")
pytest.importorskip("trl", reason="the 'reference' extra is not installed: NOT compared with TRL")

ROLLOUTS, TOKENS = 12, 9
KL_WEIGHT = 0.3
CAP = 2.0


@pytest.fixture(params=range(3))
def numbers(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    """Log-probabilities [B, T] of four policies, a mask with answers of all lengths, advantages [B]."""
    generator = np.random.default_rng(request.param)
    old = -generator.exponential(size=(ROLLOUTS, TOKENS))
    lengths = generator.integers(1, TOKENS + 1, size=ROLLOUTS)
    arrays = {
        "new": old + generator.normal(scale=0.3, size=old.shape),
        "old": old,
        "base": old + generator.normal(scale=0.5, size=old.shape),
        "behaviour": old + generator.normal(scale=0.5, size=old.shape),
        "mask": np.arange(TOKENS) < lengths[:, None],
        "advantages": generator.normal(size=ROLLOUTS),
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


class Accelerator:
    """One process: nothing is gathered from anywhere."""

    num_processes = 1
    sync_gradients = True

    def gather(self, value: Any) -> Any:
        return value

    def reduce(self, value: Any, **_how: str) -> Any:
        return value


class Metrics(dict[str, Any]):
    """Takes whatever TRL notes down."""

    def __missing__(self, key: str) -> Any:
        return self.setdefault(key, Metrics() if key == "train" else [])


def stand_in(numbers: dict[str, np.ndarray], loss_type: str, level: str, clip: ClipRange) -> tuple[Any, Any]:
    """A trainer of TRL's as far as its loss looks at it, and the tensor that it differentiates by."""
    logprobs = torch.tensor(numbers["new"], requires_grad=True)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=clip.low,
        # CISPO's bound is the weight itself in TRL, and its distance from 1 in the paper and here.
        epsilon_high=1 + clip.high if loss_type == "cispo" else clip.high,
        beta=KL_WEIGHT,
        max_completion_length=TOKENS,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        model=SimpleNamespace(training=True),
        accelerator=Accelerator(),
        _metrics=Metrics(),
        current_gradient_accumulation_steps=1,
        use_vllm=True,
        vllm_importance_sampling_correction=True,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
    )
    return trainer, logprobs


def inputs_for(numbers: dict[str, np.ndarray]) -> dict[str, Any]:
    tensors = {name: torch.tensor(value) for name, value in numbers.items()}
    nothing = torch.zeros((ROLLOUTS, 1), dtype=torch.long)
    return {
        "prompt_ids": nothing,
        "prompt_mask": nothing,
        "completion_ids": torch.zeros((ROLLOUTS, TOKENS), dtype=torch.long),
        "completion_mask": tensors["mask"],
        "advantages": tensors["advantages"],
        "old_per_token_logps": tensors["old"],
        "ref_per_token_logps": tensors["base"],
        "importance_sampling_ratio": torch.exp(tensors["old"] - tensors["behaviour"]).clamp(max=CAP),
        "num_items_in_batch": tensors["mask"].sum(),
        "old_logps": (tensors["old"] * tensors["mask"]).sum(1),
    }


def theirs(numbers: dict[str, np.ndarray], loss_type: str, level: str, clip: ClipRange) -> tuple[float, np.ndarray]:
    """Loss and gradient by TRL's GRPO trainer."""
    from trl import GRPOTrainer

    trainer, logprobs = stand_in(numbers, loss_type, level, clip)
    loss = GRPOTrainer._compute_loss(trainer, None, inputs_for(numbers))
    loss.backward()
    return loss.item(), logprobs.grad.numpy()


def ours(
    numbers: dict[str, np.ndarray], token_losses: TokenLosses, aggregate: Aggregate, clip: ClipRange | None
) -> tuple[float, np.ndarray]:
    """Loss and gradient as `trainer.policy_loss` puts them together."""
    arrays = {name: mx.array(value) for name, value in numbers.items()}
    divisors = Divisors(int(numbers["mask"].sum()), ROLLOUTS, TOKENS)

    def loss(logprobs: mx.array) -> mx.array:
        losses, _ = token_losses(ScoredAnswers(logprobs, arrays["old"], arrays["mask"], arrays["advantages"]), clip)
        losses = losses * importance_weights(arrays["old"], arrays["behaviour"], CAP)
        losses = losses + KL_WEIGHT * k3_divergence(logprobs, arrays["base"])
        return aggregate(losses, arrays["mask"], divisors)

    value, gradient = mx.value_and_grad(loss)(arrays["new"])
    return float(np.array(value)), np.array(gradient)


def assert_equal(mine: tuple[float, np.ndarray], other: tuple[float, np.ndarray]) -> None:
    assert mine[0] == pytest.approx(other[0], rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(mine[1], other[1], rtol=1e-5, atol=1e-5 * np.abs(other[1]).max())
    assert np.abs(other[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "loss_type", "level"),
    [
        ("grpo", "dapo", "token"),
        ("grpo", "bnpo", "token"),
        ("dapo", "dapo", "token"),
        ("dr_grpo", "dr_grpo", "token"),
        ("gspo", "grpo", "sequence"),
        ("cispo", "cispo", "token"),
    ],
)
def test_loss_and_gradient_agree_with_trl(
    name: Any, loss_type: str, level: str, numbers: dict[str, np.ndarray]
) -> None:
    method = METHODS[name]
    if name == "gspo":  # its own bounds are so narrow that numbers as wild as these would all be cut
        method = method.adjusted(clip_low=0.1, clip_high=0.1)
    assert method.clip is not None
    assert_equal(
        ours(numbers, method.token_losses, method.aggregate, method.clip),
        theirs(numbers, loss_type, level, method.clip),
    )


@pytest.mark.parametrize(
    ("aggregate", "loss_type"),
    [(sequence_mean, "grpo"), (token_mean, "bnpo"), (constant_length, "dr_grpo")],
    ids=["sequence_mean", "token_mean", "constant_length"],
)
def test_every_aggregation_agrees_with_trl(
    aggregate: Aggregate, loss_type: str, numbers: dict[str, np.ndarray]
) -> None:
    """GRPO as published, with the mean over answers of the mean over tokens, is among them."""
    clip = ClipRange(0.2, 0.28)
    assert_equal(ours(numbers, clipped_surrogate, aggregate, clip), theirs(numbers, loss_type, "token", clip))


def test_rloo_has_trls_gradient_where_both_are_the_policy_gradient(numbers: dict[str, np.ndarray]) -> None:
    """TRL takes the clipped surrogate of whole answers, which at ratio one has the gradient of A * logp."""
    from trl import RLOOTrainer

    numbers = {**numbers, "new": numbers["old"], "base": numbers["old"], "behaviour": numbers["old"]}
    trainer, logprobs = stand_in(numbers, "rloo", "sequence", ClipRange(0.2, 0.2))
    RLOOTrainer._compute_loss(trainer, None, inputs_for(numbers)).backward()
    method = METHODS["rloo"]
    _, gradient = ours(numbers, method.token_losses, method.aggregate, None)
    # Theirs is the sum over an answer's tokens, ours is that over the limit on tokens.
    np.testing.assert_allclose(gradient * TOKENS, logprobs.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_the_penalty_for_length_agrees_with_trl() -> None:
    from trl.rewards import get_soft_overlong_punishment

    lengths = list(range(1, 21))
    punish = get_soft_overlong_punishment(max_completion_len=20, soft_punish_cache=6)
    expected = punish(completion_ids=[[0] * length for length in lengths])
    np.testing.assert_allclose(overlong_penalties(lengths, 20, 6), expected, atol=1e-12)
