"""What an iteration asks again: what is solved sometimes, what nothing is known of, and seldom what teaches nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.choice import longest_unasked_first, most_useful_first, rests_for
from rlm_core.problems import Case, Problem, Provenance
from rlm_core.usefulness import TriedProblem, Try
from tests import tiny

G = 8


def tried(*passed: int, first: int = 1) -> tuple[Try, ...]:
    """One group of G in each of neighbouring iterations."""
    return tuple(Try(iteration=first + i, rollouts=G, passed=each) for i, each in enumerate(passed))


def test_what_is_solved_sometimes_comes_before_what_teaches_nothing() -> None:
    problems = tiny.problems(3)
    known = [
        TriedProblem(problem=problem, tries=tried(*passed))
        for problem, passed in zip(problems, [(8, 8), (4, 3), (0, 0)], strict=True)
    ]
    orders = [most_useful_first(problems, known, seed, 3) for seed in range(20)]
    assert {order[0].id for order in orders} == {problems[1].id}


def test_the_order_is_the_same_for_the_same_seed_and_iteration_and_another_for_others() -> None:
    problems = tiny.problems(12)
    first = most_useful_first(problems, [], 0, 1)
    assert sorted(p.id for p in first) == sorted(p.id for p in problems)
    assert most_useful_first(list(reversed(problems)), [], 0, 1) == first
    assert most_useful_first(problems, [], 0, 2) != first != most_useful_first(problems, [], 1, 1)


def test_a_problem_that_is_in_no_bank_is_asked_again() -> None:
    bank, other = tiny.problems(1), tiny.problems(2)[1]
    invented = other.model_copy(update={"provenance": Provenance(source="model")})
    assert invented in most_useful_first(bank, [TriedProblem(problem=invented, tries=tried(4))], 0, 2)


def test_what_people_took_out_of_the_bank_or_repaired_does_not_come_back() -> None:
    """Of a repaired problem the new version alone is asked, and it is as unknown as any other."""
    right, other = tiny.problems(2)
    wrong = right.model_copy(update={"cases": (*right.cases[:-1], Case(input=[9], expected=0))})
    listed = Problem.model_validate({"prompt": "Say yes.", "verifier": {"kind": "function", "function": "mine:judge"}})
    known = [TriedProblem(problem=problem, tries=tried(4)) for problem in (wrong, listed, other)]
    assert {p.id for p in most_useful_first([right, other], known, 0, 2)} == {right.id, other.id}
    withdrawn = [TriedProblem(problem=wrong, tries=tried(0, 0, 0))]
    assert most_useful_first([right, other], withdrawn, 0, 9) == most_useful_first([right, other], [], 0, 9)


def test_what_the_bank_says_of_a_problem_now_counts() -> None:
    """Reference and difficulty are no part of the id."""
    [now] = tiny.problems(1)
    once = now.model_copy(update={"difficulty": "middling", "reference": "def f(n):\n    return 0\n"})
    assert most_useful_first([now], [TriedProblem(problem=once, tries=tried(4))], 0, 2) == [now]


def test_groups_without_signal_let_a_problem_rest_each_time_about_twice_as_long() -> None:
    def rest(*passed: int) -> int:
        return rests_for(tried(*passed), len(passed) + 1)

    assert [rest(8), rest(8, 8), rest(0, 8, 0), rest(*[0] * 9)] == [1, 3, 7, 31]
    assert rest() == rest(4) == rest(0, 0, 1) == 0
    assert rests_for(tried(0), 3) == 0  # the one iteration is over


def test_what_could_not_be_judged_is_no_try() -> None:
    unjudged = Try(iteration=2, rollouts=0, passed=0)
    assert rests_for((*tried(4), unjudged), 3) == 0


def test_the_unknown_waits_where_its_like_were_never_solved() -> None:
    hard = [problem.model_copy(update={"difficulty": "middling"}) for problem in tiny.problems(8)]
    easy = [problem.model_copy(update={"difficulty": "starter"}) for problem in tiny.problems(8, 8)]
    known = [TriedProblem(problem=problem, tries=tried(0)) for problem in hard[:4]]
    known += [TriedProblem(problem=problem, tries=tried(3)) for problem in easy[:4]]
    unknown = {problem.id for problem in hard[4:]}
    ranks = [
        rank
        for seed in range(20)
        for rank, problem in enumerate(most_useful_first([*hard, *easy], known, seed, 2))
        if problem.id in unknown
    ]
    assert sum(ranks) / len(ranks) > 8


@given(st.lists(st.tuples(st.integers(0, G), st.booleans()), max_size=12), st.integers(0, 40))
def test_no_problem_rests_for_ever(history: list[tuple[int, bool]], later: int) -> None:
    tries = tuple(Try(iteration=i + 1, rollouts=G * asked, passed=n * asked) for i, (n, asked) in enumerate(history))
    rest = rests_for(tries, len(tries) + 1 + later)
    assert 0 <= rest <= 31
    assert rests_for(tries, len(tries) + 1 + later + rest) == 0


@given(
    size=st.integers(1, 30),
    wanted=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_every_problem_of_the_bank_comes_up_before_one_comes_up_again(
    size: int, wanted: list[int], seed: int, data: st.DataObject
) -> None:
    """However many an iteration takes, and whichever it passes over, such as those that are like what it has."""
    bank = tiny.problems(size)
    tries: dict[str, tuple[Try, ...]] = {}
    for iteration, most in enumerate(wanted, 1):
        known = [TriedProblem(problem=p, tries=tries[p.id]) for p in bank if p.id in tries]
        order = longest_unasked_first(bank, known, seed)
        assert sorted(p.id for p in order) == sorted(p.id for p in bank)
        passed_over = data.draw(st.sets(st.sampled_from(range(size)), max_size=size // 2))
        taken = [p for i, p in enumerate(order) if i not in passed_over][:most]
        waiting = {p.id for i, p in enumerate(bank) if p not in taken and order.index(p) not in passed_over}
        for problem in taken:
            since = max((each.iteration for each in tries.get(problem.id, ())), default=0)
            assert all(tries[other][-1].iteration >= since if other in tries else since == 0 for other in waiting)
        for problem in taken:
            tries[problem.id] = (*tries.get(problem.id, ()), Try(iteration=iteration, rollouts=0, passed=0))


@pytest.mark.parametrize("size", [96, 104])
def test_no_problem_of_the_bank_is_left_out_when_the_others_take_a_part_of_the_places(size: int) -> None:
    """As in `make learn`: 48 in an iteration, 36 of them composed. Steps of 48 through 96 would skip three quarters."""
    bank = tiny.problems(size)
    known: list[TriedProblem] = []
    for iteration in range(1, size // 12 + 1):
        asked = longest_unasked_first(bank, known, 0)[:12]
        known += [TriedProblem(problem=p, tries=(Try(iteration=iteration, rollouts=G, passed=0),)) for p in asked]
    assert len({each.problem.id for each in known}) == len(known) == size // 12 * 12


def test_the_bank_s_order_depends_on_the_seed_and_on_what_was_asked() -> None:
    bank = tiny.problems(20)
    first, same, other = (longest_unasked_first(bank, [], seed) for seed in (0, 0, 1))
    assert first == same
    assert len({tuple(p.id for p in order) for order in (first, other, bank)}) == 3
    asked = [TriedProblem(problem=p, tries=tried(0)) for p in first[:7]]
    assert longest_unasked_first(bank, asked, 0) == first[7:] + first[:7]


def useful_share(chosen_by: str, seed: int, iterations: int = 12, wanted: int = 24) -> float:
    """Share of useful groups after the first iterations with a policy whose pass rates are known and stay."""
    draw = random.Random(seed)
    problems = tiny.problems(100)
    rates = {problem.id: draw.choice([0.0, 0.0, 0.01, 0.05, 0.3, 0.6, 0.95, 1.0]) for problem in problems}
    tries: dict[str, list[Try]] = {}
    useful = 0
    for iteration in range(1, iterations + 1):
        known = [TriedProblem(problem=p, tries=tuple(tries[p.id])) for p in problems if p.id in tries]
        order: list[Problem] = (
            most_useful_first(problems, known, seed, iteration)
            if chosen_by == "useful"
            else longest_unasked_first(problems, known, seed)
        )
        for problem in order[:wanted]:
            passed = sum(draw.random() < rates[problem.id] for _ in range(G))
            tries.setdefault(problem.id, []).append(Try(iteration=iteration, rollouts=G, passed=passed))
            useful += 0 < passed < G and iteration > 4
    return useful / (wanted * (iterations - 4))


def test_more_groups_are_useful_than_with_a_walk_through_the_bank() -> None:
    for seed in range(3):
        assert useful_share("useful", seed) > 1.4 * useful_share("uniform", seed)
