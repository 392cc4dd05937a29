"""A problem that asks for the same as another in other words is known by what its solution does."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlm_core.config import FilterSection
from rlm_core.filter import KnownProblems, refusal
from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.twins import twin

PROPOSAL = Problem.model_validate(
    {
        "prompt": "Write a Python function `top(values)` that finds the one of the given integers that none exceeds.",
        "entry_point": "top",
        "cases": [{"input": [[n, 2 * n, 7 - n]], "expected": max(2 * n, 7 - n)} for n in range(1, 7)],
        "reference": "def top(values):\n    return max(values)\n",
    }
)
EXAM: dict[str, Any] = {
    "prompt": "Write a Python function `largest(numbers)` that returns the largest number in the list numbers.",
    "entry_point": "largest",
    "cases": [{"input": [[1, 5, 3]], "expected": 5}, {"input": [[-4, -2]], "expected": -2}],
}


def exam(*cases: dict[str, Any], **changes: Any) -> Problem:
    return Problem.model_validate(EXAM | ({"cases": cases} if cases else {}) | changes)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def test_one_whose_every_case_is_passed_is_a_twin(sandbox: Sandbox) -> None:
    smallest = exam({"input": [[1, 5]], "expected": 1}, {"input": [[2, 2]], "expected": 2}, entry_point="smallest")
    assert twin(PROPOSAL, [smallest, exam()], sandbox) == exam()
    assert twin(PROPOSAL, [smallest], sandbox) is None


@pytest.mark.parametrize(
    "other",
    [
        exam({"input": [[1, 5]], "expected": 5.0}),
        exam({"input": [["a", "b"]], "expected": "b"}),
        exam({"input": [[1, 5], [2]], "expected": [1, 5]}),
        exam({"input": [[1, 5]], "expected": 5}, {"input": [[]], "expected": 0}),
        exam({"input": [[1, 5]], "raises": "ValueError"}),
    ],
    ids=["another-type", "other-arguments", "more-arguments", "one-case-fails", "an-exception-is-wanted"],
)
def test_one_that_wants_anything_else_is_none(sandbox: Sandbox, other: Problem) -> None:
    assert twin(PROPOSAL, [other], sandbox) is None


def test_an_exception_that_is_wanted_counts(sandbox: Sandbox) -> None:
    both = exam({"input": [[1, 5]], "expected": 5}, {"input": [[]], "raises": "ValueError"})
    assert twin(PROPOSAL, [both], sandbox) == both


def test_without_a_reference_nothing_is_known(sandbox: Sandbox) -> None:
    assert twin(PROPOSAL.model_copy(update={"reference": None}), [exam()], sandbox) is None


@pytest.mark.parametrize("suite", ["benchmark", "holdout"])
def test_the_filter_refuses_what_a_suite_asks_for_in_other_words(sandbox: Sandbox, suite: str) -> None:
    known = KnownProblems({"corpus": [], "bank": [exam()], suite: [exam()]})
    assert refusal(PROPOSAL, FilterSection(), known, sandbox) == (
        "twin",
        f"its own solution passes every case of largest of the {suite}",
    )


def test_what_was_trained_on_before_may_be_asked_in_other_words(sandbox: Sandbox) -> None:
    known = KnownProblems({"corpus": [exam()], "bank": [exam()], "batch": [exam()], "benchmark": []})
    assert refusal(PROPOSAL, FilterSection(), known, sandbox) is None


def test_a_difference_in_the_last_of_many_cases_is_seen(sandbox: Sandbox) -> None:
    cases = [{"input": [[n, -n]], "expected": n} for n in range(1, 9)]
    assert twin(PROPOSAL, [exam(*cases)], sandbox) == exam(*cases)
    cases[-1] = {"input": [[8, -8]], "expected": -8}
    assert twin(PROPOSAL, [exam(*cases)], sandbox) is None
