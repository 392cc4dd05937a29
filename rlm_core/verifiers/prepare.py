"""What has to be found out before the first answer to a problem is judged."""

from collections.abc import Iterable

from rlm_core.problems import Cases, Problem, Pytest, parts
from rlm_core.verifiers import pytests
from rlm_core.verifiers.judge import judge
from rlm_core.verifiers.judgement import Answer, Bench
from rlm_core.verifiers.trivial import best_trivial_share, trivial_code


def prepare(problems: Iterable[Problem], bench: Bench, trivial: bool = True) -> list[Problem]:
    """The problems, ready to be judged; those that are ready already are left as they are.

    Args:
        trivial: whether the score of the best trivial answer has to be known, too.

    Raises:
        ProblemError: one of them cannot be judged.
        InfrastructureFault: the sandbox failed, twice.
    """
    return [_prepared(problem, bench, trivial) for problem in problems]


def _prepared(problem: Problem, bench: Bench, trivial: bool) -> Problem:
    tested = any(isinstance(part, Pytest) for part in parts(problem.verifier))
    if tested and not problem.test_ids:
        assert bench.sandbox is not None
        problem = pytests.prepare(problem, bench.sandbox)
    if trivial and problem.trivial_share is None:
        by_cases = isinstance(problem.verifier, Cases)
        share = best_trivial_share(problem) if by_cases else _best_trivial_score(problem, bench)
        problem = problem.model_copy(update={"trivial_share": share})
    return problem


def _best_trivial_score(problem: Problem, bench: Bench) -> float:
    """Of no answer at all, and of code that does no work where code is asked for and a reference tells the names."""
    codes = trivial_code(problem.reference) if problem.asks_for_code and problem.reference else []
    answers = [Answer("", None), *(Answer(code, code) for code in codes)]
    return max(judge(answer, problem, bench).score for answer in answers)
