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

    The candidate sits the holdout last, and not at all when the benchmark has settled that it is rejected.

    Args:
        examine: has somebody, by name and as a policy, sit the suite `benchmark` or `holdout`.
    """
    exams: list[Result] = []
    for who, policy in iteration.examined(results_of(trained, iteration.directory)).items():
        for kind in ("benchmark", "holdout"):
            if (who, kind) == ("candidate", "holdout"):
                sat = [results_of(exam, iteration.directory) for exam in exams]
                if settled(iteration, config, sat):
                    continue
            exams.append(examine(who, policy, kind))
    return exams
