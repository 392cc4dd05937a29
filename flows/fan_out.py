"""The fan-out over shards: each is sampled in this process and then verified where the runner has its sandboxes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from prefect.futures import PrefectFuture, wait

from flows.runners import VerifyRunner
from rlm_core.config import RolloutSection
from rlm_core.progress import check, report, stopped
from rlm_core.rounds import Rounds, Shard, announce
from tasks.stage import Result

_LOOK_EVERY_S = 0.5
"""How long a request to stop may go unnoticed while nothing else happens."""


class FanOut:
    """Shards on their way through rollout and verification."""

    def __init__(
        self,
        sample: Callable[[Shard], PrefectFuture[Any]],
        judge: Callable[[Shard, Result], PrefectFuture[Any]],
        runner: VerifyRunner,
    ):
        """
        Args:
            sample: submits the rollout of a shard.
            judge: submits the verification of a shard, given the result of its rollout.
            runner: where `judge` submits it to.
        """
        self._sample = sample
        self._judge = judge
        self._runner = runner
        self._ended: SimpleQueue[tuple[str, Shard]] = SimpleQueue()
        self._rollouts: dict[Shard, PrefectFuture[Any]] = {}
        self._verdicts: dict[Shard, PrefectFuture[Any]] = {}

    def run(self, rounds: Rounds, section: RolloutSection) -> tuple[list[Result], list[Result]]:
        """The results of rollout and verification for each shard, in order, all rounds together.

        When this returns or raises, no shard is at work, or it ends with the runner.
        """
        rollouts: list[Result] = []
        verdicts: list[Result] = []
        shards = rounds.first()
        while shards:
            announce(shards, section)
            sampled, judged = self._round(shards, section.group_size)
            rollouts += sampled
            verdicts += judged
            shards = rounds.next(sum(int(each["figures"]["useful_groups"]) for each in verdicts))
        return rollouts, verdicts

    def _round(self, shards: Sequence[Shard], group_size: int) -> tuple[list[Result], list[Result]]:
        """A shard is verified as soon as its rollouts are there."""
        try:
            for shard in shards:
                self._rollouts[shard] = self._follow("rollout", shard, self._sample(shard))
            sampled: dict[Shard, Result] = {}
            judged: dict[Shard, Result] = {}
            while len(judged) < len(shards):
                stage, shard = self._next()
                count = shard.problems * group_size
                if stage == "rollout":
                    sampled[shard] = self._rollouts[shard].result()
                    self._pass_on(stage, shard, count, self._rollouts[shard], {})
                    self._verdicts[shard] = self._follow("verify", shard, self._judge(shard, sampled[shard]))
                else:
                    judged[shard] = self._runner.result(self._verdicts[shard])
                    passed = {"passed": float(judged[shard]["figures"]["passed"])}
                    self._pass_on(stage, shard, count, self._verdicts[shard], passed)
            return [sampled[shard] for shard in shards], [judged[shard] for shard in shards]
        except BaseException:
            with stopped():  # the project must not be let go while shards of it are still at work
                ending = self._runner.elsewhere and self._runner.own
                wait([*self._rollouts.values(), *([] if ending else self._verdicts.values())])
            raise

    def _follow(self, stage: str, shard: Shard, future: PrefectFuture[Any]) -> PrefectFuture[Any]:
        future.add_done_callback(lambda _: self._ended.put((stage, shard)))
        return future

    def _next(self) -> tuple[str, Shard]:
        """The next task to end.

        Raises:
            Interrupted: a stop was asked for.
        """
        while True:
            check("verify")
            with suppress(Empty):
                return self._ended.get(timeout=_LOOK_EVERY_S)

    def _pass_on(
        self, stage: str, shard: Shard, count: int, future: PrefectFuture[Any], figures: dict[str, float]
    ) -> None:
        """Report a shard that nobody reported: it was found finished, or a process verified it that is not heard."""
        if future.state.name == "Cached":
            report(stage, count, count, shard.name, found=float(count), **figures)
        elif stage == "verify" and self._runner.elsewhere:
            report(stage, count, count, shard.name, **figures)
