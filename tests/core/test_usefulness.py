"""The one measure of usefulness: near one half is best, and what is old is worth less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.usefulness import Try, belief, usefulness

G = 8


def tried(*passed: int, first: int = 1) -> tuple[Try, ...]:
    """One group of G in each of neighbouring iterations."""
    return tuple(Try(iteration=first + i, rollouts=G, passed=each) for i, each in enumerate(passed))


def test_old_answers_count_less_and_nothing_known_is_what_its_like_are() -> None:
    assert belief((), 9, 0.25) == (0.5, 1.5)
    assert belief(tried(6), 2) == (7.0, 3.0)  # of the iteration before: in full
    right, wrong = belief(tried(6), 12)
    assert 1 < right < 2 > wrong > 1


def test_it_is_the_expected_spread_of_the_belief() -> None:
    """Beta(4, 6) after 3 of 8: 4 · 6 / (10 · 11); an iteration later eight tenths of it."""
    assert usefulness(tried(3), 2) == pytest.approx(24 / 110)
    assert usefulness(tried(3), 3) == pytest.approx(0.8 * 24 / 110)


def test_it_falls_with_the_distance_of_the_pass_rate_from_one_half() -> None:
    worth = [usefulness(tried(passed), 2) for passed in range(G + 1)]
    assert worth == sorted(worth[:5]) + sorted(worth[5:], reverse=True)
    assert worth[: G // 2] == pytest.approx(worth[: G // 2 : -1])


def test_what_could_not_be_judged_is_no_try() -> None:
    unjudged = Try(iteration=2, rollouts=0, passed=0)
    assert belief((unjudged,), 3) == (1.0, 1.0)
    assert usefulness((unjudged,), 3) == usefulness((), 3) == 0
    assert usefulness((*tried(4), unjudged), 3) == usefulness(tried(4), 3)


histories = st.lists(st.integers(0, G), min_size=1, max_size=6).map(lambda passed: tried(*passed))


@given(histories, histories, st.integers(0, 30))
def test_which_of_two_is_the_more_useful_does_not_change_with_time(
    a: tuple[Try, ...], b: tuple[Try, ...], later: int
) -> None:
    now = max(a[-1].iteration, b[-1].iteration) + 1
    assert 0 < usefulness(a, now) <= 0.25
    ratio = usefulness(a, now) / usefulness(b, now)
    assert usefulness(a, now + later) / usefulness(b, now + later) == pytest.approx(ratio)
