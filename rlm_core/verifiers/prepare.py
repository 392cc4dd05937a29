"""What has to be seen to before the first answer to a problem is judged."""

from collections.abc import Iterable

from rlm_core.problems import Problem, Pytest, parts
from rlm_core.verifiers import pytests
from rlm_core.verifiers.judgement import Bench


def prepare(problems: Iterable[Problem], bench: Bench) -> list[Problem]:
    """The problems, ready to be judged.

    Raises:
        ProblemError: one of them cannot be judged.
        InfrastructureFault: the sandbox failed, twice.
    """
    return [_prepared(problem, bench) for problem in problems]


def _prepared(problem: Problem, bench: Bench) -> Problem:
    if not any(isinstance(part, Pytest) for part in parts(problem.verifier)):
        return problem
    assert bench.sandbox is not None
    return pytests.prepare(problem, bench.sandbox)
