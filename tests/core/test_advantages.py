"""Advantages: hand-computed groups, and what must hold for every group."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.training.advantages import centred, group_normalised, have_spread, leave_one_out, overlong_penalties
from rlm_core.training.methods import Advantages

every = pytest.mark.parametrize("advantages", [group_normalised, centred, leave_one_out])
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
    np.testing.assert_allclose(group_normalised(rewards), expected, atol=1e-12)


def test_centred_advantages_are_as_computed_by_hand() -> None:
    np.testing.assert_array_equal(centred([0.0, 0.0, 0.0, 1.0]), [-0.25, -0.25, -0.25, 0.75])


def test_leave_one_out_advantages_are_as_computed_by_hand() -> None:
    # The others' mean is 1/3 for those with 0, and 0 for the one with 1. In the second group: 3/4, 1/2, 1/4.
    np.testing.assert_allclose(leave_one_out([0.0, 0.0, 0.0, 1.0]), [-1 / 3, -1 / 3, -1 / 3, 1.0], atol=1e-12)
    np.testing.assert_allclose(leave_one_out([0.0, 0.5, 1.0]), [-0.75, 0.0, 0.75], atol=1e-12)


@given(rewards=steps_of_a_sixteenth)
def test_leaving_one_out_is_the_mean_of_the_others_as_its_name_says(rewards: list[float]) -> None:
    slow = [r - sum(rewards[:i] + rewards[i + 1 :]) / (len(rewards) - 1) for i, r in enumerate(rewards)]
    np.testing.assert_allclose(leave_one_out(rewards), slow, atol=1e-9)


def test_overlong_penalties_by_hand() -> None:
    # A limit of 20 with a buffer of 4: free up to 16, then a quarter for each token, and never more than 1.
    np.testing.assert_array_equal(
        overlong_penalties([1, 16, 17, 18, 19, 20, 25], max_tokens=20, buffer=4), [0, 0, -0.25, -0.5, -0.75, -1, -1]
    )


@every
def test_advantages_of_whole_rewards_are_floating_point(advantages: Advantages) -> None:
    assert advantages([1, 1]).dtype == advantages([1, 0]).dtype == np.float64


@every
@given(rewards=rewards_of_a_group)
def test_advantages_of_a_group_sum_to_0(advantages: Advantages, rewards: list[float]) -> None:
    assert abs(advantages(rewards).sum()) < 1e-6
    assert advantages(rewards).dtype == np.float64


@every
@given(reward=st.floats(0, 1), size=st.integers(1, 64))
def test_equal_rewards_teach_exactly_nothing(advantages: Advantages, reward: float, size: int) -> None:
    assert not have_spread([reward] * size)
    assert not advantages([reward] * size).any()


@every
@given(rewards=steps_of_a_sixteenth, shift=st.integers(-8, 8))
def test_paying_everyone_more_changes_nothing(advantages: Advantages, rewards: list[float], shift: int) -> None:
    shifted = [reward + shift for reward in rewards]
    np.testing.assert_allclose(advantages(shifted), advantages(rewards), rtol=1e-9, atol=1e-9)


@given(rewards=steps_of_a_sixteenth, scale=st.floats(0.25, 8))
def test_the_scale_of_rewards_matters_only_without_normalising(rewards: list[float], scale: float) -> None:
    scaled = [scale * reward for reward in rewards]
    np.testing.assert_allclose(group_normalised(scaled), group_normalised(rewards), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(centred(scaled), scale * centred(rewards), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(leave_one_out(scaled), scale * leave_one_out(rewards), rtol=1e-9, atol=1e-9)


@given(rewards=steps_of_a_sixteenth)
def test_normalised_advantages_have_deviation_1(rewards: list[float]) -> None:
    deviation = group_normalised(rewards).std()
    assert deviation == pytest.approx(0.0 if len(set(rewards)) == 1 else 1.0)


@every
@given(rewards=steps_of_a_sixteenth)
def test_a_better_reward_is_a_better_advantage(advantages: Advantages, rewards: list[float]) -> None:
    result = advantages(rewards)
    assert np.array_equal(np.sign(np.subtract.outer(result, result)), np.sign(np.subtract.outer(rewards, rewards)))
