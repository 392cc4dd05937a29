"""What has to be found out before the first answer to a problem is judged."""

import ast
from collections.abc import Iterable

from rlm_core.problems import Problem, Pytest, parts
from rlm_core.verifiers import pytests
from rlm_core.verifiers.judge import judge
from rlm_core.verifiers.judgement import Answer, Bench

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_TRIVIAL_BODIES = (
    "return None",
    "return 0",
    "return 1",
    "return True",
    "return ''",
    "return []",
    "return a[0]",
    "raise ValueError",
)
"""What trivial functions do."""


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
    if not any(isinstance(part, Pytest) for part in parts(problem.verifier)):
        return problem
    if not problem.test_ids:
        assert bench.sandbox is not None
        problem = pytests.prepare(problem, bench.sandbox)
    if trivial and problem.trivial_share is None:
        problem = problem.model_copy(update={"trivial_share": _best_trivial_score(problem, bench)})
    return problem


def _best_trivial_score(problem: Problem, bench: Bench) -> float:
    assert problem.reference is not None
    return max(judge(Answer(code, code), problem, bench).score for code in _trivial_code(problem.reference))


def _trivial_code(reference: str) -> list[str]:
    """Trivial answers as code, for tests that have to be run: every name that the reference defines is such a function.

    The reference is a person's, and is only parsed here.
    """
    names = [node.name for node in ast.parse(reference).body if isinstance(node, _DEFINITIONS)]
    return ["".join(f"def {name}(*a, **k): {body}\n" for name in names) for body in _TRIVIAL_BODIES]
