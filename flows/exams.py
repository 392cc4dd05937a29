"""Who sits which exam of an iteration, and in which order."""

from collections.abc import Callable

from rlm_core.conclude import settled
from rlm_core.config import Config
from rlm_core.iteration import Iteration
from rlm_core.records import PolicyRef
from tasks.stage import Result, results_of


def sit_exams(
    iteration: Iteration, config: Config, trained: Result, examine: Callable[[str, PolicyRef, str], Result]
) -> list[Result]:
    """Have base model, incumbent and candidate examined; what was sat before is not sat again.

    They sit the holdout when all have sat the benchmark, and only if it can still change anything.

    Args:
        examine: has somebody, by name and as a policy, sit the suite `benchmark` or `holdout`.
    """
    policies = iteration.examined(results_of(trained, iteration.directory))
    exams = [examine(who, policy, "benchmark") for who, policy in policies.items()]
    if exams and not settled(iteration, config, [results_of(exam, iteration.directory) for exam in exams]):
        exams += [examine(who, policy, "holdout") for who, policy in policies.items()]
    return exams
