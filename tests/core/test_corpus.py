"""Which answers the corpus keeps: the most useful, never too many, none twice, in whatever order they come."""

from hypothesis import given
from hypothesis import strategies as st

from rlm_core.state.corpus import CorpusAnswer, most_useful
from tests import tiny


def answer(name: int, usefulness: float, pass_rate: float = 0.5, iteration: int = 1, rollout: int = 0) -> CorpusAnswer:
    return CorpusAnswer(
        problem=tiny.problem(2, name),
        rollout_id=f"{name}-{iteration}-{rollout}",
        iteration=iteration,
        text=tiny.answer(2),
        pass_rate=pass_rate,
        usefulness=usefulness,
    )


ANSWERS = st.lists(
    st.builds(
        answer,
        st.integers(0, 5),
        st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.25]),
        st.sampled_from([0.125, 0.5, 1.0]),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=12,
)
SIZES = st.integers(0, 8)


@given(ANSWERS, SIZES)
def test_it_is_never_larger_than_its_bound_and_has_no_problem_twice(answers: list[CorpusAnswer], size: int) -> None:
    kept = most_useful(answers, size)
    assert len(kept) == min(size, len({a.problem.id for a in answers}))
    assert len({a.problem.id for a in kept}) == len(kept)
    assert all(a in answers for a in kept)


@given(ANSWERS, SIZES)
def test_nothing_that_goes_is_more_useful_than_what_stays(answers: list[CorpusAnswer], size: int) -> None:
    kept = most_useful(answers, size)
    named = {a.problem.id for a in kept}
    gone = [a for a in answers if a.problem.id not in named]
    assert [a.usefulness for a in kept] == sorted((a.usefulness for a in kept), reverse=True)
    assert all(a.usefulness <= b.usefulness for a in gone for b in kept)


@given(ANSWERS, SIZES, st.data())
def test_the_order_in_which_they_come_does_not_matter(
    answers: list[CorpusAnswer], size: int, data: st.DataObject
) -> None:
    assert most_useful(data.draw(st.permutations(answers)), size) == most_useful(answers, size)


@given(ANSWERS, ANSWERS, SIZES)
def test_to_choose_again_from_what_was_kept_and_what_is_new_is_to_choose_from_all(
    before: list[CorpusAnswer], new: list[CorpusAnswer], size: int
) -> None:
    assert most_useful([*most_useful(before, size), *new], size) == most_useful([*before, *new], size)


def test_of_two_answers_to_a_problem_the_newer_stays() -> None:
    old, new = answer(1, 0.2, iteration=1), answer(1, 0.2, iteration=2)
    assert most_useful([old, new]) == most_useful([new, old]) == [new]


def test_of_equally_useful_ones_the_easier_goes() -> None:
    easy, hard = answer(1, 0.2, pass_rate=0.75), answer(2, 0.2, pass_rate=0.25)
    assert most_useful([easy, hard], 1) == [hard]


def test_the_same_request_with_other_cases_is_no_second_problem() -> None:
    one = answer(1, 0.2)
    fewer = one.problem.model_copy(update={"cases": one.problem.cases[:2]})
    assert most_useful([one, one.model_copy(update={"problem": fewer, "usefulness": 0.1})]) == [one]
