"""A problem that asks for the same as another in other words is known by what its solution does."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlm_core.config import FilterSection, VerifySection
from rlm_core.filter import refusal
from rlm_core.problems import Problem
from rlm_core.proposals.known import KnownProblems
from rlm_core.proposals.proof import Prover, open_prover
from rlm_core.proposals.twins import twin
from rlm_core.sandbox import Limits, Sandbox, open_sandbox
from rlm_core.verifiers import judge_cases

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


@pytest.fixture(scope="module")
def prover() -> Iterator[Prover]:
    with open_prover(VerifySection()) as opened:
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


@pytest.mark.parametrize(("wanted", "counts"), [("ValueError", True), ("Exception", True), ("LookupError", False)])
def test_an_exception_that_is_wanted_counts_as_in_verification(sandbox: Sandbox, wanted: str, counts: bool) -> None:
    both = exam({"input": [[1, 5]], "expected": 5}, {"input": [[]], "raises": wanted})
    assert (twin(PROPOSAL, [both], sandbox) == both) == counts
    as_an_answer = both.model_copy(update={"entry_point": PROPOSAL.entry_point})
    assert (judge_cases(sandbox, str(PROPOSAL.reference), as_an_answer).status == "passed") == counts


def test_without_a_reference_nothing_is_known(sandbox: Sandbox) -> None:
    assert twin(PROPOSAL.model_copy(update={"reference": None}), [exam()], sandbox) is None


@pytest.mark.parametrize("group", ["benchmark", "holdout", "corpus", "bank", "batch"])
def test_the_filter_refuses_what_is_known_in_other_words(prover: Prover, group: str) -> None:
    known = KnownProblems({group: [exam()]})
    refused = refusal(PROPOSAL, FilterSection(), known, prover)
    assert refused is not None
    assert (refused.rule, refused.limit) == ("twin", "none")
    assert str(refused.value) in refused.reason
    assert refused.reason == f"its own solution passes every case of largest of the {group}"


def test_one_twin_among_many_is_found_although_an_input_of_another_never_ends() -> None:
    reference = "def top(values):\n    while len(values) > 3: pass\n    return max(values)\n"
    slow = PROPOSAL.model_copy(update={"reference": reference})
    others = [exam({"input": [[1, n]], "expected": 1}, entry_point=f"f{n}") for n in range(2, 120)]
    long = exam({"input": [[1, 2, 3, 4]], "expected": 4}, entry_point="long")
    with open_sandbox(limits=Limits(case_s=0.1)) as hasty:
        assert twin(slow, [*others[:30], long, *others[30:], exam()], hasty) == exam()


@pytest.mark.parametrize(
    "falls_out",
    [
        "all(True for _ in iter(int, 1))",
        "__import__('os')._exit(1)",
        "raise SystemExit",
        "return {1, 2}",
        "return [0] * 10**6",
    ],
    ids=["never-ends", "ends-its-process", "exits", "returns-a-set", "returns-too-much"],
)
def test_a_twin_is_found_whatever_happens_on_the_inputs_of_many_others(sandbox: Sandbox, falls_out: str) -> None:
    reference = f"def top(values):\n    if len(values) > 3: {falls_out}\n    return max(values)\n"
    proposal = PROPOSAL.model_copy(update={"reference": reference})
    cases = [{"input": [[1, 2, 3, n]], "expected": -1} for n in range(4, 8)]
    before, after = ([exam(*cases, entry_point=f"{name}{n}") for n in range(5)] for name in "fg")
    assert twin(proposal, [*before, exam(), *after], sandbox) == exam()
    assert twin(proposal, [*before, *after], sandbox) is None


def test_what_is_late_tells_nothing_and_the_other_cases_decide(sandbox: Sandbox) -> None:
    """The exam's third input takes the proposal's solution long; on the two others it is right, or wrong."""
    reference = "def top(values):\n    while len(values) > 3: pass\n    return max(values)\n"
    proposal = PROPOSAL.model_copy(update={"reference": reference})
    late = {"input": [[1, 2, 3, 4]], "expected": 4}
    assert twin(proposal, [exam(*EXAM["cases"], late)], sandbox) is not None
    assert twin(proposal, [exam(*EXAM["cases"], late, {"input": [[1]], "expected": 0})], sandbox) is None
    assert twin(proposal, [exam(late, late, *EXAM["cases"])], sandbox) is None


def by_tests(reference: str, name: str = "largest") -> Problem:
    """An exam's problem that is judged by tests."""
    tests = {"kind": "pytest", "tests": f"from main import {name}\n\ndef test(): assert {name}([1, 5]) == 5\n"}
    content = {key: value for key, value in EXAM.items() if key != "cases"}
    return Problem.model_validate(content | {"entry_point": name, "verifier": tests, "reference": reference})


LARGEST = (
    "def largest(numbers):\n    found = numbers[0]\n    for n in numbers:\n        found = n if n > found else found\n"
)


@pytest.mark.parametrize(
    ("other", "is_twin"),
    [
        (by_tests(LARGEST + "    return found\n"), True),
        (by_tests(LARGEST + "    return found\n").model_copy(update={"entry_point": "answer"}), True),
        (by_tests(LARGEST + "    return found + 1\n"), False),
        (by_tests(LARGEST + "    return found if found < 10 else 10\n"), False),
        (by_tests("def largest(numbers, more):\n    return max(numbers)\n"), False),
        (by_tests("class Largest:\n    pass\n"), False),
        (by_tests("import os\ndef largest(numbers):\n    os._exit(1)\n"), False),
    ],
    ids=["same", "the-only-function", "another", "another-at-last", "more-arguments", "a-class", "ends-its-process"],
)
def test_of_a_problem_with_tests_it_is_its_own_solution_that_passes_the_proposal_s_cases(
    sandbox: Sandbox, other: Problem, is_twin: bool
) -> None:
    twins = [by_tests("def largest(numbers):\n    return min(numbers)\n"), other]
    assert twin(PROPOSAL, twins, sandbox) == (other if is_twin else None)


def test_a_difference_in_the_last_of_many_cases_is_seen(sandbox: Sandbox) -> None:
    cases = [{"input": [[n, -n]], "expected": n} for n in range(1, 9)]
    assert twin(PROPOSAL, [exam(*cases)], sandbox) == exam(*cases)
    cases[-1] = {"input": [[8, -8]], "expected": -8}
    assert twin(PROPOSAL, [exam(*cases)], sandbox) is None
