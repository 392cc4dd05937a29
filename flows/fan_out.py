"""The fan-out over shards: each is sampled in this process and then verified where the runner has its sandboxes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from prefect.futures import PrefectFuture, wait

from flows.runners import VerifyRunner
from rlm_core.progress import report, stopped

Result = dict[str, Any]

_LOOK_EVERY_S = 0.5
"""How long a request to stop may go unnoticed while nothing else happens."""


class FanOut:
    """Shards on their way through rollout and verification."""

    def __init__(
        self,
        sample: Callable[[int], PrefectFuture[Any]],
        judge: Callable[[int, Result], PrefectFuture[Any]],
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
        self._ended: SimpleQueue[tuple[str, int]] = SimpleQueue()
        self._rollouts: dict[int, PrefectFuture[Any]] = {}
        self._verdicts: dict[int, PrefectFuture[Any]] = {}

    def run(self, counts: Sequence[int]) -> tuple[list[Result], list[Result]]:
        """The results of rollout and verification for each shard, in order.

        A shard is verified as soon as its rollouts are there. When this returns or raises, no shard is at work, or it
        ends with the runner.

        Args:
            counts: how many rollouts each shard has.
        """
        try:
            for shard in range(len(counts)):
                self._rollouts[shard] = self._follow("rollout", shard, self._sample(shard))
            sampled: dict[int, Result] = {}
            judged: dict[int, Result] = {}
            while len(judged) < len(counts):
                stage, shard = self._next()
                if stage == "rollout":
                    sampled[shard] = self._rollouts[shard].result()
                    self._pass_on(stage, shard, counts[shard], self._rollouts[shard], {})
                    self._verdicts[shard] = self._follow("verify", shard, self._judge(shard, sampled[shard]))
                else:
                    judged[shard] = self._runner.result(self._verdicts[shard])
                    passed = {"passed": float(judged[shard]["figures"]["passed"])}
                    self._pass_on(stage, shard, counts[shard], self._verdicts[shard], passed)
            return [sampled[shard] for shard in sorted(sampled)], [judged[shard] for shard in sorted(judged)]
        except BaseException:
            with stopped():  # the project must not be let go while shards of it are still at work
                ending = self._runner.elsewhere and self._runner.own
                wait([*self._rollouts.values(), *([] if ending else self._verdicts.values())])
            raise

    def _follow(self, stage: str, shard: int, future: PrefectFuture[Any]) -> PrefectFuture[Any]:
        future.add_done_callback(lambda _: self._ended.put((stage, shard)))
        return future

    def _next(self) -> tuple[str, int]:
        """The next task to end.

        Raises:
            Interrupted: a stop was asked for.
        """
        while True:
            report("verify", 0, 0)
            with suppress(Empty):
                return self._ended.get(timeout=_LOOK_EVERY_S)

    def _pass_on(
        self, stage: str, shard: int, count: int, future: PrefectFuture[Any], figures: dict[str, float]
    ) -> None:
        """Report a shard that nobody reported: it was found finished, or a process verified it that is not heard."""
        if future.state.name == "Cached":
            report(stage, count, count, f"{shard:03d}", found=float(count), **figures)
        elif stage == "verify" and self._runner.elsewhere:
            report(stage, count, count, f"{shard:03d}", **figures)
