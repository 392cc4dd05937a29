"""Judge answers in a sandbox and say what they are paid. Untrusted code runs nowhere else."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from rlm_core import progress
from rlm_core.answers import extract_code
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault, StageFailed
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.records import FileRef, Problem, Rollout, StageResult, Verdict
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.trivial import best_trivial_share
from rlm_core.verifiers.cases import Judgement, judge_cases

_PER_SANDBOX = 16
"""Answers for which starting one more sandbox pays."""


def run(directory: Path, problems: FileRef, rollouts: FileRef, section: VerifySection) -> StageResult:
    """The verify stage for one shard: judge its rollouts into `directory/verdicts/`, under the same file name."""
    source = Path(rollouts.path)
    by_id = {problem.id: problem for problem in read_jsonl(Path(problems.path), Problem)}
    verdicts = judge_rollouts(list(read_jsonl(source, Rollout)), by_id, section, part=source.stem)
    path = write_jsonl(directory / "verdicts" / source.name, verdicts)
    return StageResult(
        files={"verdicts": FileRef.of(path)},
        figures={
            "verdicts": len(verdicts),
            "passed": sum(verdict.passed for verdict in verdicts),
            "infrastructure_faults": sum(verdict.status == "infrastructure" for verdict in verdicts),
            "reward": sum(verdict.reward for verdict in verdicts),
            "latency_s": [verdict.latency_s for verdict in verdicts],
            "sandbox": sandbox_used(verdicts),
        },
    )


def sandbox_used(verdicts: Sequence[Verdict]) -> str:
    """Name of the sandbox that ran the answers' code, or `none` when no answer held any."""
    return next((verdict.sandbox for verdict in verdicts if verdict.sandbox != "none"), "none")


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
    sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
    opened = []
    try:
        for _ in range(workers):
            opened.append(open_sandbox(section.sandbox, section.limits))
            sandboxes.put(opened[-1])

        def judge(rollout: Rollout) -> Verdict:
            sandbox = sandboxes.get()
            try:
                return judge_rollout(sandbox, rollout, problems[rollout.problem_id], section.partial_credit)
            finally:
                sandboxes.put(sandbox)

        return _judge_all(judge, rollouts, workers, stage, part)
    finally:
        for sandbox in opened:
            sandbox.close()


def _judge_all(
    judge: Callable[[Rollout], Verdict], rollouts: Sequence[Rollout], workers: int, stage: str, part: str
) -> list[Verdict]:
    verdicts: list[Verdict] = []
    passed = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="judge") as pool:
        try:
            for verdict in pool.map(judge, rollouts):
                verdicts.append(verdict)
                passed += verdict.passed
                progress.report(stage, len(verdicts), len(rollouts), part, passed=passed)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return verdicts


def judge_rollout(sandbox: Sandbox, rollout: Rollout, problem: Problem, partial_credit: float) -> Verdict:
    """Judge one answer: take the code out of it, run it against the problem's cases, and work out its reward."""
    started = time.monotonic()
    code = extract_code(rollout.text)
    if code is None:
        return Verdict(
            rollout_id=rollout.id,
            problem_id=problem.id,
            status="failed",
            reason="no code in the answer",
            sandbox="none",
        )
    try:
        judgement = judge_cases(sandbox, code, problem)
    except InfrastructureFault as fault:
        return Verdict(
            rollout_id=rollout.id,
            problem_id=problem.id,
            status="infrastructure",
            reason=str(fault),
            sandbox=sandbox.name,
            latency_s=time.monotonic() - started,
        )
    return judged(judgement, problem, rollout.id, sandbox.name, time.monotonic() - started, partial_credit)


def judged(
    judgement: Judgement, problem: Problem, rollout_id: str, sandbox: str, latency_s: float, partial_credit: float
) -> Verdict:
    """The verdict that a judgement comes to, with the reward worked out."""
    verdict = Verdict(
        rollout_id=rollout_id,
        problem_id=problem.id,
        status=judgement.status,
        reason=judgement.reason,
        cases=judgement.cases,
        sandbox=sandbox,
        latency_s=latency_s,
    )
    return verdict.model_copy(update={"reward": reward(verdict, best_trivial_share(problem), partial_credit)})


def reward(verdict: Verdict, trivial_share: float, partial_credit: float) -> float:
    """What an answer is paid, 0 to 1.

    All cases passed pays 1. Else `partial_credit` times the share of passed cases above what the best trivial answer
    gets, so that a constant earns nothing:

        reward = partial_credit * max(0, share - trivial) / (1 - trivial)
    """
    if verdict.passed:
        return 1.0
    if trivial_share >= 1:
        return 0.0
    return partial_credit * max(0.0, verdict.pass_share - trivial_share) / (1 - trivial_share)


def require_few_faults(verdicts: Sequence[Verdict], max_failed_share: float) -> None:
    """Stop an iteration in which the machinery lost too many rollouts.

    Raises:
        StageFailed: with the first fault's reason.
    """
    faults = [verdict for verdict in verdicts if verdict.status == "infrastructure"]
    if len(faults) > max_failed_share * len(verdicts):
        raise StageFailed(
            f"verify: {len(faults)} of {len(verdicts)} rollouts could not be judged, verify.max_failed_share allows "
            f"{max_failed_share:g}; the first: {faults[0].reason}"
        )
