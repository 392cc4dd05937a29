"""Sitting an exam: answers to a suite, sampled or recited, judged and counted."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlm_core import progress
from rlm_core.answers import in_block
from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.exams.exam import Exam
from rlm_core.exams.key import code_version
from rlm_core.exams.parts import KeptParts, Part, SatPart, parts_of
from rlm_core.exams.scores import mean_pass_at, pass_at_k
from rlm_core.judging import judge_rollouts, open_bench, sandbox_used
from rlm_core.model.device import device_policy
from rlm_core.problems import Problem
from rlm_core.records import Examinee, ExamReport, PolicyRef, ProblemScore, Recited, Rollout, Verdict
from rlm_core.rollout import sample_rollouts
from rlm_core.sources.suite import Suite
from rlm_core.verifiers import prepare


@dataclass(frozen=True)
class Sat:
    """An exam that was sat: the report, and the answers and verdicts that it rests on."""

    report: ExamReport
    answers: list[Rollout]
    verdicts: list[Verdict]


def sit_exam(exam: Exam, examinee: Examinee, kept: KeptParts | None = None) -> Sat:
    """Examine somebody.

    Every sample has a seed of its own that derives from the exam's seed, the problem and the sample's index, so two
    policies answer the same problems with the same seeds and their scores are paired.

    Args:
        kept: parts that are there are taken from it, and others are added.

    Raises:
        ProblemError: a solution is to be recited, and a problem has none.
        ModelError, AdapterError, SandboxUnavailable: as loading a policy and opening a sandbox do.
    """
    ready = {problem.id: problem for problem in _ready(exam)}
    parts = parts_of(exam)
    sat = {part.number: found for part in parts if kept and (found := kept.read(part))}
    for part in parts:
        name = _shown(exam, examinee, part)
        if part.number in sat:
            progress.report("evaluate", part.answers, part.answers, name, found=part.answers)
        else:
            progress.report("evaluate", 0, part.answers, name)
    lacking = [part for part in parts if part.number not in sat]
    for part, came in _sit(exam, examinee, lacking, ready):
        sat[part.number] = came
        if kept:
            kept.write(part, came)
    return _together(exam, examinee, [sat[part.number] for part in parts])


def _together(exam: Exam, examinee: Examinee, parts: Sequence[SatPart]) -> Sat:
    """One exam of all its parts, its answers in the order of the problems."""
    place = {problem.id: number for number, problem in enumerate(exam.suite.problems)}
    pairs = [pair for part in parts for pair in zip(part.answers, part.verdicts, strict=True)]
    pairs.sort(key=lambda pair: (place[pair[0].problem_id], pair[0].index))
    answers, verdicts = [answer for answer, _ in pairs], [verdict for _, verdict in pairs]
    sampling_s, duration_s = sum(part.sampling_s for part in parts), sum(part.duration_s for part in parts)
    return Sat(report_on(exam, examinee, answers, verdicts, sampling_s, duration_s), answers, verdicts)


def _ready(exam: Exam) -> list[Problem]:
    """The problems, ready to be judged. What cannot be judged is found here, and not when all answers are there."""
    with open_bench(exam.judging, exam.suite.problems) as bench:
        return prepare(exam.suite.problems, bench, trivial=False)


def require_complete(report: ExamReport) -> None:
    """Stop work that would rest on an exam that was not judged completely.

    Raises:
        InfrastructureFault: naming the suite and how many answers could not be judged.
    """
    if not report.complete:
        raise InfrastructureFault(
            f"evaluate: {report.infrastructure_faults} answers on {report.suite} could not be judged; "
            "the exam does not count and the stage has to run again"
        )


# -------------------------------------------------------------------------------------------------------------- answers


def _sit(
    exam: Exam, examinee: Examinee, parts: Sequence[Part], ready: Mapping[str, Problem]
) -> Iterator[tuple[Part, SatPart]]:
    """Sit some parts, one after the other.

    Args:
        ready: problems by id, ready to be judged.
    """
    if not parts:
        return
    with _answering(examinee) as answers_to:
        for part in parts:
            name = _shown(exam, examinee, part)
            started = time.monotonic()
            answers = answers_to(part, name)
            sampled = time.monotonic()
            verdicts = judge_rollouts(answers, ready, exam.judging, stage="evaluate_verify", part=name)
            sat = SatPart(
                answers=tuple(answers),
                verdicts=tuple(verdicts),
                sampling_s=sampled - started,
                duration_s=time.monotonic() - started,
            )
            yield part, sat


@contextmanager
def _answering(examinee: Examinee) -> Iterator[Callable[[Part, str], list[Rollout]]]:
    """What gives somebody's answers to a part, which goes by a name in progress reports."""
    if isinstance(examinee, Recited):
        yield lambda part, _: [each for problem in part.problems for each in _recited(examinee, problem, part)]
    else:
        with device_policy(examinee.base, examinee.adapter) as policy:
            yield lambda part, name: sample_rollouts(
                policy, part.problems, part.section, part.seed, stage="evaluate", part=name
            )


def _shown(exam: Exam, examinee: Examinee, part: Part) -> str:
    """The part's name in progress reports."""
    return f"{exam.name} {examinee.name[:8]} {part.number}"


def _recited(examinee: Recited, problem: Problem, part: Part) -> list[Rollout]:
    """The same answer, so many times. No tokens: no model wrote it."""
    text = _solution(problem) if examinee.recites == "reference" else _nothing(problem)
    return [
        Rollout(
            problem_id=problem.id,
            index=index,
            seed=0,
            prompt_tokens=(),
            tokens=(),
            logprobs=(),
            text=text,
            finish_reason="stop",
        )
        for index in range(part.section.group_size)
    ]


def _solution(problem: Problem) -> str:
    if problem.reference is None:
        raise ProblemError(f"{problem.entry_point}: has no reference solution that could be recited")
    return in_block(problem.reference) if problem.asks_for_code else problem.reference


def _nothing(problem: Problem) -> str:
    return in_block(problem.preamble) if problem.preamble else ""


# --------------------------------------------------------------------------------------------------------------- report


def report_on(
    exam: Exam,
    examinee: Examinee,
    answers: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    sampling_s: float,
    duration_s: float,
) -> ExamReport:
    """Count what came of an exam."""
    scores = _scores(exam.suite.problems, verdicts)
    pass_at, intervals = mean_pass_at(scores, exam.samples, exam.seed)
    return ExamReport(
        suite=exam.name,
        suite_digest=exam.suite.digest,
        policy=examinee.name,
        base_model=examinee.base if isinstance(examinee, PolicyRef) else "none",
        k=exam.samples,
        temperature=exam.evaluate.temperature,
        top_p=exam.evaluate.top_p,
        max_tokens=exam.evaluate.max_tokens,
        seed=exam.seed,
        pass_at=pass_at,
        intervals=intervals,
        pass_at_own_k=_at_own_k(exam.suite, {score.problem_id: score for score in scores}),
        problems=scores,
        tokens=sum(len(answer.tokens) for answer in answers),
        truncated_share=sum(answer.truncated for answer in answers) / len(answers),
        unusable_share=sum(verdict.unusable for verdict in verdicts) / len(answers),
        wrong_share=sum(verdict.status == "failed" and not verdict.unusable for verdict in verdicts) / len(answers),
        infrastructure_faults=sum(not verdict.judged for verdict in verdicts),
        sandbox=sandbox_used(verdicts),
        code=code_version(),
        sampling_s=sampling_s,
        duration_s=duration_s,
    )


def _scores(problems: Sequence[Problem], verdicts: Sequence[Verdict]) -> tuple[ProblemScore, ...]:
    judged = Counter(verdict.problem_id for verdict in verdicts if verdict.judged)
    correct = Counter(verdict.problem_id for verdict in verdicts if verdict.passed)
    return tuple(
        ProblemScore(
            problem_id=problem.id,
            entry_point=problem.entry_point,
            samples=judged[problem.id],
            correct=correct[problem.id],
        )
        for problem in problems
    )


def _at_own_k(suite: Suite, scores: Mapping[str, ProblemScore]) -> float | None:
    """The suite's own measure, where it has one: the mean of pass@k with each problem's k, 1 where it gives none."""
    if all(asking.k is None for asking in suite.askings.values()):
        return None
    asked = [(scores[problem.id], suite.asking(problem).k or 1) for problem in suite.problems]
    judged = [pass_at_k(score.samples, score.correct, k) for score, k in asked if score.samples >= k]
    return sum(judged) / len(judged) if judged else None
