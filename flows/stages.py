"""The stages of one iteration, each given exactly the settings that it reads."""

from typing import Any

from rlm_core.config import Config
from rlm_core.iteration import Iteration
from rlm_core.progress import report
from tasks.evaluate import evaluate
from tasks.filter import filter_problems
from tasks.gate import gate
from tasks.generate import generate
from tasks.mutate import mutate
from tasks.rollout import rollout
from tasks.stage import placed, results_of
from tasks.train import train
from tasks.verify import verify

Result = dict[str, Any]


class Stages:
    """Calls the tasks of one iteration. What a task is not given here cannot change its result or its cache key."""

    def __init__(self, iteration: Iteration, config: Config):
        self._it = iteration
        self._config = config
        self._where = {"directory": iteration.directory, "timeout_s": config.prefect.evaluate_timeout_s}
        self._asking = {"directory": iteration.directory, "timeout_s": config.prefect.rollout_timeout_s}
        self._suites = {"benchmark": config.evaluate.benchmark, "holdout": config.evaluate.holdout}

    def _placed(self, stage: Any, **options: Any) -> Any:
        return placed(stage, self._it, self._config.prefect, **options)

    def generate(self) -> Result:
        seed = self._it.stage_seed("generate")
        return self._placed(generate)(
            **self._asking, incumbent=self._it.incumbent, section=self._config.generate, seed=seed
        )

    def mutate(self, proposals: Result) -> Result:
        return self._placed(mutate)(
            **self._asking,
            incumbent=self._it.incumbent,
            proposals=proposals,
            generate=self._config.generate,
            section=self._config.mutate,
            project_seed=self._config.seed,
            iteration=self._it.number,
        )

    def filter(self, *proposals: Result) -> Result:
        return self._placed(filter_problems)(
            **self._where,
            project=self._it.project,
            proposals=list(proposals),
            generate=self._config.generate,
            suites=self._suites,
            section=self._config.filter,
            verify=self._config.verify,
            project_seed=self._config.seed,
            iteration=self._it.number,
        )

    def rollout_and_verify(self, problems: Result) -> tuple[list[Result], list[Result]]:
        """Fan out over shards. A shard is verified as soon as its rollouts are there.

        Submitted in pairs: a pool that was full of waiting rollouts would keep the first verification waiting too.
        """
        section, total = self._config.rollout, int(results_of(problems).figures["problems"])  # type: ignore[arg-type]
        rollouts, verdicts = [], []
        sizes = [min(section.shard_problems, total - first) for first in range(0, total, section.shard_problems)]
        for shard, size in enumerate(sizes):
            for stage in ("rollout", "verify"):
                report(stage, 0, size * section.group_size, part=f"{shard:03d}")
        for shard in range(len(sizes)):
            rollouts.append(
                self._placed(rollout, task_run_name=f"rollout-{shard:03d}").submit(
                    **self._asking,
                    incumbent=self._it.incumbent,
                    problems=problems,
                    shard=shard,
                    section=section,
                    seed=self._it.stage_seed("rollout"),
                )
            )
            verdicts.append(
                self._placed(verify, task_run_name=f"verify-{shard:03d}").submit(
                    **self._where, problems=problems, rollouts=rollouts[-1], section=self._config.verify
                )
            )
        return [future.result() for future in rollouts], [future.result() for future in verdicts]

    def train(self, rollouts: list[Result], verdicts: list[Result]) -> Result:
        return self._placed(train)(
            directory=self._it.directory,
            timeout_s=self._config.prefect.train_timeout_s,
            incumbent=self._it.incumbent,
            rollouts=rollouts,
            verdicts=verdicts,
            section=self._config.train,
            max_failed_share=self._config.verify.max_failed_share,
            temperature=self._config.rollout.temperature,
            seed=self._it.stage_seed("train"),
            iteration=self._it.number,
        )

    def evaluate(self, trained: Result) -> list[Result]:
        """Exams of the base model, the incumbent and the candidate; those that were sat before are not sat again."""
        candidate = self._it.candidate(results_of(trained))
        if candidate is None:
            return []
        policies = {"base": self._it.base, "incumbent": self._it.incumbent, "candidate": candidate}
        return [
            self._placed(evaluate, task_run_name=f"evaluate-{who}-{kind}")(
                **self._where,
                project=self._it.project,
                who=who,
                examined=policy,
                suite=suite,
                section=self._config.evaluate,
                rollout=self._config.rollout,
                verify=self._config.verify,
                seed=self._it.exam_seed,
            )
            for who, policy in policies.items()
            for kind, suite in self._suites.items()
        ]

    def gate(
        self, made: list[Result], rollouts: list[Result], verdicts: list[Result], trained: Result, exams: list[Result]
    ) -> Result:
        return gate(self._it, self._config, made, rollouts, verdicts, trained, exams)
