"""What has to be seen to before the first answer to a problem is judged."""

from collections.abc import Iterable

from rlm_core.problems import Problem, Pytest, parts
from rlm_core.verifiers import pytests
from rlm_core.verifiers.judgement import Bench


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
    ready = problem.test_ids and (problem.trivial_share is not None or not trivial)
    if ready or not any(isinstance(part, Pytest) for part in parts(problem.verifier)):
        return problem
    assert bench.sandbox is not None
    return pytests.prepare(problem, bench.sandbox, trivial)
