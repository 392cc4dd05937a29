"""The gate stage as tasks. They are not cached: the ledger knows whether an iteration was decided."""

from pathlib import Path

from prefect import get_run_logger, task

from rlm_core.conclude import Exams, decide_by_rule, explain, finish
from rlm_core.config import Config
from rlm_core.iteration import Iteration
from rlm_core.pages.write import were_written
from rlm_core.records import GateDecision, IterationResults
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import keep_newest
from rlm_core.trackers import tell_trackers
from tasks.events import tell
from tasks.pages import publish, publish_ended, title_of
from tasks.stage import Result


@task(
    name="gate",
    task_run_name="iteration {iteration.number} · gate",
    description="The candidate is compared with the incumbent.",
    persist_result=False,
)
def gate(iteration: Iteration, config: Config, results: IterationResults) -> tuple[GateDecision, str]:
    """The decision by the configured rule, and its page."""
    decision, page = decide_by_rule(iteration, config, results.trained, results.exams)
    _show(iteration, page, decision)
    return decision, page


@task(
    name="conclude",
    task_run_name="iteration {iteration.number} · conclude",
    description="The decision goes to the ledger.",
    persist_result=False,
)
def conclude(iteration: Iteration, config: Config, decision: GateDecision, results: IterationResults) -> Result:
    """Decision and summary, as JSON data."""
    project = Project(Path(iteration.project))
    if decision.approval is not None:  # what a person answered is not on the page yet
        _show(iteration, explain(iteration, config, decision, results.trained, Exams(results.exams)), decision)
    summary = finish(iteration, config, decision, results)
    _tell_all(project, decision, config)
    keep_newest(project, config.keep_iterations, get_run_logger().info)
    return {"decision": decision.model_dump(mode="json"), "summary": summary.model_dump(mode="json")}


def catch_up(iteration: Iteration, config: Config) -> None:
    """Tell of the iteration before this one, when its run was killed after its commit and before it had done that."""
    project = Project(Path(iteration.project))
    before = iteration.number - 1
    if project.run(before).is_dir() and not were_written(project, before):
        with open_ledger(project.ledger) as ledger:
            decision = ledger.history()[-1].decision
        _tell_all(project, decision, config)


def _show(iteration: Iteration, page: str, decision: GateDecision) -> None:
    publish(Path(iteration.project), page)
    get_run_logger().info("%s: %s", title_of(page), decision.reason)


def _tell_all(project: Project, decision: GateDecision, config: Config) -> None:
    """What an iteration came to, by event, trackers and pages. The pages come last: they show that all was told."""
    told = decision.model_dump(mode="json", include={"iteration", "reason", "benchmark", "holdout", "candidate"})
    tell(decision.outcome, str(project.root), told)
    tell_trackers(config.trackers, project.root, decision.iteration, get_run_logger().warning)
    publish_ended(project.root, decision.iteration)
