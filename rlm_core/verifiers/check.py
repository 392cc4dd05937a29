"""What can be wrong with a problem is found before any work is done on it."""

from collections.abc import Callable, Collection, Iterable

from rlm_core.errors import ProblemError
from rlm_core.problems import Cases, Function, JsonSchema, Problem, ReasoningGym, Verifier, parts
from rlm_core.sandbox.limits import Limits
from rlm_core.verifiers import function
from rlm_core.verifiers.cases import check_cases
from rlm_core.verifiers.scorer import Scorer


def check_problems(problems: Iterable[Problem], limits: Limits, functions: Collection[str]) -> None:
    """See that answers to the problems can be judged at all, without judging one.

    Args:
        functions: the user's own that the config lists.

    Raises:
        ProblemError: naming the problem and what is wrong with it.
        InfrastructureFault: the scorer does not start.
    """
    with Scorer(limits) as scorer:
        for problem in problems:
            check_problem(problem, limits, functions, scorer)


def check_problem(problem: Problem, limits: Limits, functions: Collection[str], scorer: Scorer) -> None:
    """See that answers to a problem can be judged at all: cases, schemas, functions, data sets.

    Raises:
        ProblemError, InfrastructureFault: as `check_problems`.
    """
    checks: dict[type[Verifier], Callable[..., None]] = {
        Cases: lambda _: check_cases(problem, limits),
        Function: lambda part: function.check(part, functions),
        JsonSchema: scorer.prepare,
        ReasoningGym: scorer.prepare,
    }
    try:
        for part in parts(problem.verifier):
            if check := checks.get(type(part)):
                check(part)
    except ProblemError as error:
        raise ProblemError(f"{problem.called}: {error}") from error
