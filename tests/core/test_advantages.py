"""Advantages: hand-computed groups, and what must hold for every group."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_core.advantages import group_advantages

rewards_of_a_group = st.lists(st.floats(0, 1), min_size=2, max_size=64)
steps_of_a_sixteenth = st.lists(st.integers(0, 16).map(lambda n: n / 16), min_size=2, max_size=64)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0, 0.0, 1.0], [1.0, -1.0, -1.0, 1.0]),
        # mean 1/4, variance (3 * 1/16 + 9/16) / 4 = 3/16
        ([0.0, 0.0, 0.0, 1.0], [-1 / math.sqrt(3)] * 3 + [math.sqrt(3)]),
        # mean 1/2, variance (1/4 + 0 + 1/4) / 3 = 1/6
        ([0.0, 0.5, 1.0], [-math.sqrt(1.5), 0.0, math.sqrt(1.5)]),
    ],
)
def test_normalised_advantages_are_as_computed_by_hand(rewards: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(group_advantages(rewards), expected, atol=1e-12)


def test_without_normalising_only_the_mean_is_taken_off() -> None:
    advantages = group_advantages([0.0, 0.0, 0.0, 1.0], normalise=False)
    np.testing.assert_array_equal(advantages, [-0.25, -0.25, -0.25, 0.75])
    assert advantages.dtype == np.float64


@settings(deadline=None)
@given(rewards=rewards_of_a_group, normalise=st.booleans())
def test_advantages_of_a_group_sum_to_0(rewards: list[float], normalise: bool) -> None:
    assert abs(group_advantages(rewards, normalise).sum()) < 1e-6


@settings(deadline=None)
@given(reward=st.floats(0, 1), size=st.integers(1, 64), normalise=st.booleans())
def test_equal_rewards_teach_exactly_nothing(reward: float, size: int, normalise: bool) -> None:
    assert not group_advantages([reward] * size, normalise).any()


@settings(deadline=None)
@given(rewards=steps_of_a_sixteenth, shift=st.integers(-8, 8), normalise=st.booleans())
def test_paying_everyone_more_changes_nothing(rewards: list[float], shift: int, normalise: bool) -> None:
    shifted = [reward + shift for reward in rewards]
    np.testing.assert_allclose(
        group_advantages(shifted, normalise), group_advantages(rewards, normalise), rtol=1e-9, atol=1e-9
    )


@settings(deadline=None)
@given(rewards=steps_of_a_sixteenth, scale=st.floats(0.25, 8))
def test_the_scale_of_rewards_matters_only_without_normalising(rewards: list[float], scale: float) -> None:
    scaled = [scale * reward for reward in rewards]
    np.testing.assert_allclose(group_advantages(scaled), group_advantages(rewards), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        group_advantages(scaled, False), scale * group_advantages(rewards, False), rtol=1e-9, atol=1e-9
    )


@settings(deadline=None)
@given(rewards=steps_of_a_sixteenth)
def test_normalised_advantages_have_deviation_1(rewards: list[float]) -> None:
    deviation = group_advantages(rewards).std()
    assert deviation == pytest.approx(0.0 if len(set(rewards)) == 1 else 1.0)


@settings(deadline=None)
@given(rewards=steps_of_a_sixteenth, normalise=st.booleans())
def test_a_better_reward_is_a_better_advantage(rewards: list[float], normalise: bool) -> None:
    advantages = group_advantages(rewards, normalise)
    assert np.array_equal(
        np.sign(np.subtract.outer(advantages, advantages)), np.sign(np.subtract.outer(rewards, rewards))
    )
