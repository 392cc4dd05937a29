"""From a problem's verifier to the function that judges by it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from rlm_core import problems
from rlm_core.problems import Problem, Verifier, direct_parts
from rlm_core.verifiers import cases, composed, function, gym, pytests, text
from rlm_core.verifiers.judgement import Answer, Bench, Judgement

_JUDGES: dict[type[Any], Callable[[Any, Answer, Problem, Bench], Judgement]] = {
    problems.Cases: cases.judge,
    problems.Pytest: pytests.judge,
    problems.Regex: text.judge_regex,
    problems.JsonSchema: text.judge_json_schema,
    problems.Exact: text.judge_exact,
    problems.Numeric: text.judge_numeric,
    problems.Function: function.judge,
    problems.ReasoningGym: gym.judge,
}
_COMPOSED: dict[type[Any], Callable[[Any, Sequence[composed.Part]], Judgement]] = {
    problems.All: composed.judge_all,
    problems.Any_: composed.judge_any,
    problems.Weighted: composed.judge_weighted,
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
    if combine := _COMPOSED.get(type(verifier)):
        return combine(verifier, [_judge_part(answer, problem, bench, part) for part in direct_parts(verifier)])
    return _JUDGES[type(verifier)](verifier, answer, problem, bench)


def _judge_part(answer: Answer, problem: Problem, bench: Bench, verifier: Verifier) -> composed.Part:
    started = time.monotonic()
    judgement = judge(answer, problem, bench, verifier)
    return composed.Part(verifier.kind, judgement, (time.monotonic() - started) * 1e3)
