"""The evaluate stage as a task, one policy and one suite at a time."""

from rlm_core import evaluate as core
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.exams.order import Order
from rlm_core.records import Examinee, StageResult
from tasks.stage import stage_task


@stage_task(
    version=1,
    description="A policy sits an exam.",
    reads=[
        "evaluate",
        "rollout.batch_size",
        "rollout.prompt_suffix",
        "rollout.stop_after_code",
        "verify",
    ],
    # Which suite it is comes by itself. Nothing is paid in an exam, and what is not judged does not count at all.
    ignores=[
        "evaluate.benchmark",
        "evaluate.holdout",
        "verify.workers",
        "verify.max_failed_share",
        "verify.partial_credit",
    ],
)
def evaluate(
    directory: str,
    project: str,
    who: str,
    examined: Examinee,
    suite: str,
    evaluate: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
    seed: int,
) -> StageResult:
    return core.run(Order(directory, project, who, examined, suite, evaluate, rollout, verify, seed))
