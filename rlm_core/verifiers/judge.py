"""From a problem's verifier to the function that judges by it."""

from collections.abc import Callable
from typing import Any

from rlm_core import problems
from rlm_core.problems import Problem, Verifier
from rlm_core.verifiers import cases, pytests
from rlm_core.verifiers.judgement import Answer, Bench, Judgement

_JUDGES: dict[type[Any], Callable[[Any, Answer, Problem, Bench], Judgement]] = {
    problems.Cases: cases.judge,
    problems.Pytest: pytests.judge,
}


def judge(answer: Answer, problem: Problem, bench: Bench, verifier: Verifier | None = None) -> Judgement:
    """Judge an answer.

    Args:
        verifier: a part of the problem's verifier; by default all of it.

    Raises:
        ProblemError: the problem itself cannot be judged.
        InfrastructureFault: the machinery failed; this says nothing about the answer.
    """
    verifier = verifier or problem.verifier
    return _JUDGES[type(verifier)](verifier, answer, problem, bench)
