"""Exams: a policy on a suite, scored by the unbiased pass@k."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.errors import InfrastructureFault
from rlm_core.files import digest, write_jsonl, write_record
from rlm_core.ledger import open_ledger
from rlm_core.policy import Policy, device_policy
from rlm_core.problems import Problem
from rlm_core.project import Project
from rlm_core.records import ExamReport, FileRef, PolicyRef, ProblemScore, Rollout, StageResult, Verdict
from rlm_core.rollout import sample_rollouts
from rlm_core.seeds import derive_seed
from rlm_core.sources.problem_files import read_problems
from rlm_core.verifiers.function import sources
from rlm_core.verify import judge_rollouts

EXAM_VERSION = 2
"""Raised when the same answers would be scored differently, so that earlier reports are not reused."""


def run(
    directory: Path,
    project: Path,
    who: str,
    examined: PolicyRef,
    suite: str,
    evaluate: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
    seed: int,
) -> StageResult:
    """The evaluate stage for one policy and suite: a report in `directory/exams/`.

    An earlier report of the very same exam is taken from the ledger instead of sitting it again.

    Args:
        who: `base`, `incumbent` or `candidate`; part of the file's name.

    Raises:
        InfrastructureFault: some answers could not be judged; the exam does not count.
    """
    problems = read_problems(suite)
    content = suite_digest(problems)
    key = exam_key(examined.fingerprint, examined.name, content, seed, evaluate, rollout, verify)
    name = f"{who}-{content}"
    with open_ledger(Project(project).ledger) as ledger:
        report = ledger.exam(key)
        reused = report is not None
        if report is None:
            with device_policy(examined.base, examined.adapter) as policy:
                report, answers, verdicts = sit_exam(policy, suite, problems, evaluate, rollout, verify, seed)
            write_jsonl(directory / "exams" / f"{name}.answers.jsonl", answers)
            write_jsonl(directory / "exams" / f"{name}.verdicts.jsonl", verdicts)
            require_complete(report)
            ledger.save_exam(key, report)
    path = write_record(directory / "exams" / f"{name}.json", report)
    figures = {"who": who, "suite": suite, "reused": reused, "pass_at": report.model_dump(mode="json")["pass_at"]}
    return StageResult(files={"report": FileRef.of(path)}, figures=figures)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k answers is right.

        pass@k = 1 - C(n - c, k) / C(n, k)

    Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1.

    Args:
        samples: n, answers that were judged, at least k.
        correct: c, those that were right.
    """
    assert 0 <= correct <= samples and 1 <= k <= samples
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def suite_digest(problems: Sequence[Problem]) -> str:
    """Content hash of a suite; the order does not matter."""
    return digest(sorted(problem.id for problem in problems))


def exam_key(
    base_fingerprint: str,
    policy: str,
    suite: str,
    seed: int,
    evaluate: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
) -> str:
    """Names all that an exam's report depends on; reports with equal keys are equal."""
    settings: list[Any] = [evaluate.samples, evaluate.temperature, evaluate.top_p, evaluate.max_tokens]
    settings += [rollout.prompt_suffix, rollout.stop_after_code]
    settings += [verify.sandbox, verify.limits.model_dump(mode="json"), sources(verify.functions)]
    if verify.sandbox == "docker":  # its image says which packages an answer can use
        settings.append(verify.container.model_dump(mode="json"))
    return digest(EXAM_VERSION, base_fingerprint, policy, suite, seed, settings)


def sit_exam(
    policy: Policy,
    suite: str,
    problems: Sequence[Problem],
    evaluate: EvaluateSection,
    rollout: RolloutSection,
    verify: VerifySection,
    seed: int,
) -> tuple[ExamReport, list[Rollout], list[Verdict]]:
    """Examine a policy on a suite.

    Every sample has a seed of its own that derives from `seed`, the problem and the sample's index, so two policies
    answer the same problems with the same seeds and their scores are paired.

    Returns:
        The report, and the answers and verdicts that it rests on.
    """
    started = time.monotonic()
    asked = rollout.model_copy(
        update={
            "group_size": evaluate.samples,
            "temperature": evaluate.temperature,
            "top_p": evaluate.top_p,
            "top_k": 0,
            "max_tokens": evaluate.max_tokens,
        }
    )
    part = f"{suite} {policy.name[:8]}"
    answers = sample_rollouts(policy, problems, asked, derive_seed(seed, "exam"), stage="evaluate", part=part)
    verdicts = judge_rollouts(answers, {p.id: p for p in problems}, verify, stage="evaluate_verify", part=part)
    return (
        _report(policy, suite, problems, evaluate, seed, answers, verdicts, time.monotonic() - started),
        answers,
        verdicts,
    )


def _report(
    policy: Policy,
    suite: str,
    problems: Sequence[Problem],
    evaluate: EvaluateSection,
    seed: int,
    answers: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    duration_s: float,
) -> ExamReport:
    judged = Counter(verdict.problem_id for verdict in verdicts if verdict.status != "infrastructure")
    correct = Counter(verdict.problem_id for verdict in verdicts if verdict.passed)
    scores = tuple(
        ProblemScore(
            problem_id=problem.id,
            entry_point=problem.entry_point,
            samples=judged[problem.id],
            correct=correct[problem.id],
        )
        for problem in problems
    )
    return ExamReport(
        suite=suite,
        suite_digest=suite_digest(problems),
        policy=policy.name,
        base_model=policy.base,
        k=evaluate.samples,
        temperature=evaluate.temperature,
        seed=seed,
        pass_at=_pass_at(scores, evaluate.samples),
        problems=scores,
        tokens=sum(len(answer.tokens) for answer in answers),
        truncated_share=sum(answer.finish_reason == "length" for answer in answers) / len(answers),
        unusable_share=sum(verdict.unusable for verdict in verdicts) / len(answers),
        wrong_share=sum(verdict.status == "failed" and not verdict.unusable for verdict in verdicts) / len(answers),
        infrastructure_faults=sum(verdict.status == "infrastructure" for verdict in verdicts),
        duration_s=duration_s,
    )


def _pass_at(scores: Sequence[ProblemScore], samples: int) -> dict[int, float]:
    """Mean pass@k over problems, for k = 1, 2, 4 … and the number of samples; from complete problems only."""
    complete = [score for score in scores if score.samples == samples]
    ks = sorted({2**power for power in range(samples.bit_length()) if 2**power <= samples} | {samples})
    if not complete:
        return {}
    return {k: sum(pass_at_k(score.samples, score.correct, k) for score in complete) / len(complete) for k in ks}


def require_complete(report: ExamReport) -> None:
    """Stop an iteration whose exam was not judged completely: nothing may be decided on it.

    Raises:
        InfrastructureFault: naming the suite and how many answers could not be judged.
    """
    if not report.complete:
        raise InfrastructureFault(
            f"evaluate: {report.infrastructure_faults} answers on {report.suite} could not be judged; "
            "the exam does not count and the stage has to run again"
        )
