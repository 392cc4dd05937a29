"""The gate stage as a task. It is not cached: the ledger knows whether an iteration was decided."""

from prefect import get_run_logger, task

from rlm_core.config import Config
from rlm_core.iteration import Iteration, finish
from tasks.stage import TAGS, results_of


@task(name="gate", tags=TAGS, description="The candidate is accepted or rejected.", persist_result=False)
def gate(
    iteration: Iteration,
    config: Config,
    made: list[dict],
    rollouts: list[dict],
    verdicts: list[dict],
    trained: dict,
    exams: list[dict],
) -> dict:
    decision, summary = finish(
        iteration,
        config,
        [results_of(result, iteration.directory) for result in made],
        [results_of(result, iteration.directory) for result in rollouts],
        [results_of(result, iteration.directory) for result in verdicts],
        results_of(trained, iteration.directory),
        [results_of(result, iteration.directory) for result in exams],
    )
    get_run_logger().info("%s: %s", decision.outcome, decision.reason)
    return {"decision": decision.model_dump(mode="json"), "summary": summary.model_dump(mode="json")}
