"""The stages of one iteration, each given exactly the settings that it reads."""

from typing import Any

from prefect import Task
from prefect.futures import PrefectFuture

from flows.approval import UiQuestion
from flows.exams import sit_exams
from flows.fan_out import FanOut
from flows.runners import VerifyRunner, verify_runner
from rlm_core.approval import approved
from rlm_core.config import Config
from rlm_core.exams.order import Order
from rlm_core.iteration import Iteration
from rlm_core.records import PolicyRef
from rlm_core.rounds import Rounds, Shard
from rlm_core.sources import source_state
from rlm_core.verifiers.function import sources
from tasks.evaluate import evaluate
from tasks.filter import filter_problems
from tasks.gate import conclude, gate
from tasks.generate import generate
from tasks.mutate import mutate
from tasks.rollout import rollout
from tasks.stage import Result, iteration_results_of, placed, results_of
from tasks.train import train
from tasks.verify import verify


class Stages:
    """Calls the tasks of one iteration. What a task is not given here cannot change its result or its cache key."""

    def __init__(self, iteration: Iteration, config: Config):
        self._it = iteration
        self._config = config
        self._suites = {"benchmark": config.evaluate.benchmark, "holdout": config.evaluate.holdout}
        self._maker = {"learner": iteration.learner, "project_seed": config.seed, "iteration": iteration.number}

    def generate(self) -> Result:
        return self._task(generate)(
            **self._common(self._config.prefect.rollout_timeout_s, reads=[self._config.generate.bank]),
            section=self._config.generate,
            verify=self._config.verify,
            **self._maker,
            corpus=self._it.corpus if self._config.generate.shows_corpus else None,
        )

    def mutate(self, proposals: Result) -> Result:
        return self._task(mutate)(
            **self._common(self._config.prefect.rollout_timeout_s, reads=[self._config.generate.bank]),
            proposals=proposals,
            generate=self._config.generate,
            section=self._config.mutate,
            **self._maker,
        )

    def filter(self, *proposals: Result) -> Result:
        reads = [self._config.generate.bank, *self._suites.values()]
        return self._task(filter_problems)(
            **self._common(self._config.prefect.verify_timeout_s, reads, judges=True),
            project=self._it.project,
            proposals=list(proposals),
            generate=self._config.generate,
            suites=self._suites,
            section=self._config.filter,
            verify=self._config.verify,
            **self._maker,
            rollout=self._config.rollout,
            reserve=int(self._config.rollout.resample_budget * self._config.generate.problems),
        )

    def rollout_and_verify(self, problems: Result) -> tuple[list[Result], list[Result]]:
        """Fan out over shards; a shard is verified as soon as its rollouts are there. Useless groups are replaced."""
        with verify_runner(self._config) as runner:
            return FanOut(
                sample=lambda shard: self._rollout(problems, shard),
                judge=lambda shard, rollouts: self._verify(problems, shard, rollouts, runner),
                runner=runner,
            ).run(Rounds.of(results_of(problems, self._it.directory), self._config.rollout), self._config.rollout)

    def _rollout(self, problems: Result, shard: Shard) -> PrefectFuture[Result]:
        return self._task(rollout, f"rollout {shard.shown}").submit(
            **self._common(self._config.prefect.rollout_timeout_s),
            learner=self._it.learner,
            problems=problems,
            shard=shard,
            section=self._config.rollout,
            seed=self._it.stage_seed("rollout"),
        )

    def _verify(self, problems: Result, shard: Shard, rollouts: Result, runner: VerifyRunner) -> PrefectFuture[Result]:
        return runner.submit(
            self._task(verify, f"verify {shard.shown}"),
            **self._common(self._config.prefect.verify_timeout_s, judges=True),
            problems=problems,
            source=shard.source,
            rollouts=rollouts,
            section=runner.section,
        )

    def train(self, rollouts: list[Result], verdicts: list[Result]) -> Result:
        return self._task(train)(
            **self._common(self._config.prefect.train_timeout_s),
            learner=self._it.learner,
            rollouts=rollouts,
            verdicts=verdicts,
            section=self._config.train,
            max_failed_share=self._config.verify.max_failed_share,
            rollout=self._config.rollout,
            seed=self._it.stage_seed("train"),
            iteration=self._it.number,
            corpus=self._it.corpus if self._config.train.rehearsal.share else None,
        )

    def evaluate(self, trained: Result) -> list[Result]:
        return sit_exams(self._it, self._config, trained, self._examine)

    def _examine(self, who: str, policy: PolicyRef, kind: str) -> Result:
        suite = self._suites[kind]
        order = Order.by(self._config, self._it.directory, who, policy, suite)
        common = self._common(self._config.prefect.evaluate_timeout_s, reads=[suite], judges=True)
        return self._task(evaluate, f"{who} sits the {kind}")(**common | order.parameters())

    def gate(self, **stages: Result | list[Result]) -> Result:
        """Decide, ask a person where the config says so, and commit.

        Args:
            stages: what the others returned, called as in `IterationResults`.
        """
        results = iteration_results_of(stages, self._it.directory)
        proposed, page = gate(self._it, self._config, results)
        decision = approved(proposed, page, self._config.gate, UiQuestion(proposed, self._it.project))
        return conclude(self._it, self._config, decision, results)

    def _task(self, stage: Task[..., Result], run_name: str | None = None) -> Task[..., Result]:
        name = f"iteration {self._it.number} · {run_name or stage.name}"
        return placed(stage, self._it, self._config.prefect, task_run_name=name)

    def _common(self, timeout_s: float, reads: list[str] | None = None, judges: bool = False) -> dict[str, Any]:
        """What every stage is given: where, for how long at most, and which files it reads as they are now."""
        files = {name: source_state(name) for name in reads or []}
        own = sources(self._config.verify.functions) if judges else {}
        return {"directory": self._it.directory, "timeout_s": timeout_s, "files": files | own}
