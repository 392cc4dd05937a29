"""How answers are judged, in training and in exams: in sandboxes side by side, what was lost or late once more.

Untrusted code runs nowhere else.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

from rlm_core import progress
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault
from rlm_core.problems import Problem
from rlm_core.records import Rollout, Verdict
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.verifiers import Answer, Bench, Judgement, judge, prepare
from rlm_core.verifiers.scorer import Scorer
from rlm_core.verifiers.trivial import best_trivial_share

_PATIENCE_WHEN_ALONE = 2.0
_PAUSES_S = (1.0, 4.0)
"""Before what the machinery lost is judged again, and again; half as long to half as long again, by lot."""
_PER_SANDBOX = 16
"""Answers for which starting one more sandbox pays."""

_log = logging.getLogger(__name__)


def judge_rollouts(
    rollouts: Sequence[Rollout],
    problems: Mapping[str, Problem],
    section: VerifySection,
    stage: str = "verify",
    part: str = "",
) -> list[Verdict]:
    """A verdict for each rollout, in the same order.

    Sandboxes work side by side; an answer that the machinery fails to judge gets the status `infrastructure`.

    Raises:
        SandboxUnavailable: the configured sandbox cannot be had.
    """
    workers = max(1, min(section.workers, len(rollouts) // _PER_SANDBOX))
    asked = {identity: problems[identity] for identity in {rollout.problem_id for rollout in rollouts}}
    with ExitStack() as opened:
        benches = _Benches(opened.enter_context(open_bench(section, asked.values())) for _ in range(workers))
        with benches.one() as bench:
            ready = prepare(asked.values(), bench, trivial=section.partial_credit > 0)
        asked = dict(zip(asked, ready, strict=True))

        def judge_one(rollout: Rollout) -> Verdict:
            with benches.one() as bench:
                return judge_rollout(bench, rollout, asked[rollout.problem_id], section.partial_credit)

        verdicts = _judge_all(judge_one, rollouts, workers, stage, part)
        verdicts = _judge_lost_ones_again(verdicts, rollouts, judge_one, stage)
    return _judge_late_ones_again(verdicts, rollouts, asked, section, stage)


class _Benches:
    """Benches for several threads."""

    def __init__(self, benches: Iterable[Bench]) -> None:
        self._free: SimpleQueue[Bench] = SimpleQueue()
        for bench in benches:
            self._free.put(bench)

    @contextmanager
    def one(self) -> Iterator[Bench]:
        """One of them for this thread alone, as soon as one is free."""
        bench = self._free.get()
        try:
            yield bench
        finally:
            self._free.put(bench)


def _judge_all(
    judge_one: Callable[[Rollout], Verdict], rollouts: Sequence[Rollout], workers: int, stage: str, part: str
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    passed = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="judge") as pool:
        try:
            for verdict in pool.map(judge_one, rollouts):
                verdicts.append(verdict)
                passed += verdict.passed
                progress.report(stage, len(verdicts), len(rollouts), part, passed=passed)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return verdicts


def _judge_lost_ones_again(
    verdicts: Sequence[Verdict], rollouts: Sequence[Rollout], judge_one: Callable[[Rollout], Verdict], stage: str
) -> list[Verdict]:
    """The verdicts, those anew that the machinery lost, after a pause: one such need not cost a shard or an exam.

    Where it fails again at the first answer, the others would only take their time to fail, too.
    """
    judged = list(verdicts)
    for pause in _PAUSES_S:
        lost = [number for number, verdict in enumerate(judged) if not verdict.judged]
        if not lost:
            break
        reason = judged[lost[0]].reason
        _log.warning("%s: %d answers that the machinery lost are judged again: %s", stage, len(lost), reason)
        time.sleep(pause * random.uniform(0.5, 1.5))
        for number in lost:
            progress.check(stage)
            judged[number] = judge_one(rollouts[number])
            if not judged[number].judged:
                break
    return judged


def _judge_late_ones_again(
    verdicts: Sequence[Verdict],
    rollouts: Sequence[Rollout],
    problems: Mapping[str, Problem],
    section: VerifySection,
    stage: str,
) -> list[Verdict]:
    """The verdicts, those anew that failed by the wall clock: now one at a time, with no other answer beside them.

    What was late because the machine was busy gets its due; what sleeps is late again, and waited for less.
    """
    judged = list(verdicts)
    late = [number for number, verdict in enumerate(verdicts) if not verdict.passed and verdict.usage.ran_out_of_clock]
    if not late:
        return judged
    _log.warning("%s: %d answers that were late by the clock alone are judged again, one by one", stage, len(late))
    patience = min(section.limits.patience, _PATIENCE_WHEN_ALONE)
    alone = section.model_copy(update={"limits": section.limits.model_copy(update={"patience": patience})})
    with open_bench(alone, problems.values()) as bench:
        for number in late:
            progress.check(stage)
            problem = problems[rollouts[number].problem_id]
            judged[number] = judge_rollout(bench, rollouts[number], problem, section.partial_credit)
    return judged


@contextmanager
def open_bench(section: VerifySection, problems: Iterable[Problem]) -> Iterator[Bench]:
    """What is needed to judge answers to these problems.

    Raises:
        SandboxUnavailable: they ask for code, and the configured sandbox cannot be had.
    """
    functions = frozenset(section.functions)
    with ExitStack() as opened:
        scorer = opened.enter_context(Scorer(section.limits))
        sandbox = None
        if any(problem.asks_for_code for problem in problems):
            sandbox = opened.enter_context(open_configured(section))
        yield Bench(sandbox, functions, section.limits, scorer)


def open_configured(section: VerifySection, hash_seed: int = 0) -> Sandbox:
    """The sandbox that the config asks for.

    Args:
        hash_seed: as in `open_sandbox`.

    Raises:
        SandboxUnavailable: it cannot be had.
    """
    return open_sandbox(section.sandbox, section.limits, hash_seed, section.container)


def judge_rollout(bench: Bench, rollout: Rollout, problem: Problem, partial_credit: float) -> Verdict:
    """Judge one rollout and work out its reward; a fault of the machinery is a verdict too, and no reward."""
    started = time.monotonic()
    try:
        return judge_answer(bench, Answer.of(rollout.text), problem, rollout.id, partial_credit)[1]
    except InfrastructureFault as fault:
        return Verdict(
            rollout_id=rollout.id,
            problem_id=problem.id,
            status="infrastructure",
            reason=str(fault),
            sandbox=bench.sandbox.name if bench.sandbox else "none",
            latency_s=time.monotonic() - started,
        )


def judge_answer(
    bench: Bench, answer: Answer, problem: Problem, answer_id: str, partial_credit: float
) -> tuple[Judgement, Verdict]:
    """Judge an answer by its problem's verifier and work out its reward.

    Raises:
        ProblemError: the problem itself cannot be judged.
        InfrastructureFault: the machinery failed; this says nothing about the answer.
    """
    started = time.monotonic()
    judgement = judge(answer.after(problem.preamble), problem, bench)
    trivial = best_trivial_share(problem) if partial_credit and judgement.status == "failed" else 0.0
    sandbox = bench.sandbox if problem.asks_for_code and answer.code is not None else None
    verdict = Verdict(
        rollout_id=answer_id,
        problem_id=problem.id,
        status=judgement.status,
        reason=judgement.reason,
        cases=judgement.cases,
        sandbox=sandbox.name if sandbox else "none",
        latency_s=time.monotonic() - started,
        usage=judgement.usage,
        score=judgement.score,
        reward=reward(judgement, trivial, partial_credit),
    )
    return judgement, verdict


def reward(judgement: Judgement, trivial_share: float, partial_credit: float) -> float:
    """What an answer is paid, 0 to 1.

    A passed answer is paid 1. Any other, `partial_credit` times its score above what the best trivial answer gets, so
    that a constant earns nothing:

        reward = partial_credit * max(0, score - trivial) / (1 - trivial)
    """
    if judgement.status == "passed":
        return 1.0
    if trivial_share >= 1:
        return 0.0
    return partial_credit * max(0.0, judgement.score - trivial_share) / (1 - trivial_share)


def sandbox_used(verdicts: Sequence[Verdict]) -> str:
    """Name of the sandbox that ran the answers' code, or `none` when no answer held any."""
    return next((verdict.sandbox for verdict in verdicts if verdict.sandbox != "none"), "none")
