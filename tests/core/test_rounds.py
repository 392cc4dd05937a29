"""Shards: every problem once; and further ones for useless groups, until enough are useful or the budget is used up."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rlm_core.files import write_jsonl
from rlm_core.records import Rollout
from rlm_core.rounds import Rounds, Shard, asked_problems
from rlm_core.state.run import Run
from tests import tiny


def positions(shards: list[Shard]) -> list[int]:
    return [shard.first + i for shard in shards for i in range(shard.problems)]


def test_the_first_round_has_all_problems_and_the_next_as_many_as_useful_groups_are_lacking() -> None:
    rounds = Rounds(problems=10, reserve=7, size=4)
    first = rounds.first()
    assert [(s.number, s.source, s.first, s.problems) for s in first] == [
        (0, "problems", 0, 4),
        (1, "problems", 4, 4),
        (2, "problems", 8, 2),
    ]
    assert [(s.number, s.source, s.first, s.problems) for s in rounds.next(useful=5)] == [
        (3, "reserve", 0, 4),
        (4, "reserve", 4, 1),
    ]
    assert [(s.number, s.first, s.problems) for s in rounds.next(useful=6)] == [(5, 5, 2)]  # no more are left
    assert rounds.next(useful=6) == []


def test_people_are_told_which_shard_of_how_many_it_is_and_why_it_is_there() -> None:
    rounds = Rounds(problems=3, reserve=2, size=2)
    assert [shard.shown for shard in rounds.first()] == ["shard 1/2", "shard 2/2"]
    assert [shard.shown for shard in rounds.next(useful=1)] == ["shard 3/3, in the place of useless groups"]


def test_nothing_more_is_asked_when_all_groups_are_useful_or_nothing_is_in_reserve() -> None:
    enough, without = Rounds(3, 3, 4), Rounds(3, 0, 4)
    for rounds in (enough, without):
        rounds.first()
    assert enough.next(useful=3) == enough.next(useful=4) == without.next(useful=0) == []


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9), st.integers(0, 4))
def test_every_problem_is_in_one_shard_and_the_rounds_end(problems: int, reserve: int, size: int, every: int) -> None:
    """Of the groups asked in the place of others, one in `every` is useful; with 0, none."""
    rounds = Rounds(problems, reserve, size)
    shards = rounds.first()
    assert positions(shards) == list(range(problems))
    more: list[Shard] = []
    while found := rounds.next(sum(s.problems for s in more) // every if every else 0):
        more += found
    assert positions(more) == list(range(len(positions(more))))
    assert len(positions(more)) <= reserve
    assert [shard.number for shard in [*shards, *more]] == list(range(len(shards) + len(more)))
    assert all(1 <= shard.problems <= size for shard in [*shards, *more])


def test_of_the_reserve_only_what_was_answered_was_asked(tmp_path: Path) -> None:
    first, second, third = tiny.problems(3)
    write_jsonl(tmp_path / "problems.jsonl", [first])
    assert asked_problems(Run(tmp_path), []) == [first]
    write_jsonl(tmp_path / "reserve.jsonl", [second, third])
    rollout = Rollout(
        problem_id=third.id, index=0, seed=0, prompt_tokens=(), tokens=(), logprobs=(), text="", finish_reason="stop"
    )
    assert asked_problems(Run(tmp_path), [rollout]) == [first, third]
