"""`rlm verify`: one answer to one problem, judged by hand as training and exams judge it."""

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from rlm_cli.terminal import plain_console
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault, ProblemError, SandboxUnavailable
from rlm_core.files import read_given_text
from rlm_core.judging import judge_answer, open_bench
from rlm_core.problems import Cases, Mode, Problem, Pytest, parts
from rlm_core.records import Verdict
from rlm_core.sources import read_problems
from rlm_core.verifiers import Answer, Judgement, prepare
from rlm_core.verifiers.check import check_problems

PASSED, FAILED, NOT_JUDGED = 0, 1, 2


def judge_by_hand(
    problem_file: Path, answer_file: Path, mode: Mode | None, section: VerifySection, as_json: bool
) -> int:
    """Judge the answer in a file, all of which is code when the problem asks for code, and print the verdict.

    Args:
        mode: judge by this part of the problem's verifier only.

    Returns:
        0 when the answer passed, 1 when it failed, 2 when it could not be judged.

    Raises:
        ProblemError: a file cannot be read, the problem file does not hold exactly one problem, or that cannot be
            judged in the mode.
    """
    problem = _only_problem(problem_file, mode)
    text = read_given_text(answer_file, str(answer_file), ProblemError)
    answer = Answer(text, text if problem.asks_for_code else None)
    try:
        check_problems([problem], section.limits, section.functions)
        with open_bench(section, [problem]) as bench:
            [problem] = prepare([problem], bench)
            judgement, verdict = judge_answer(bench, answer, problem, answer_file.name, section.partial_credit)
    except (InfrastructureFault, SandboxUnavailable) as fault:
        plain_console(stderr=True).print(f"rlm: could not be judged: {fault}", soft_wrap=True)
        return NOT_JUDGED
    if as_json:
        print(json.dumps(_details(problem, judgement, verdict)))
    else:
        _print(problem, judgement, verdict)
    return PASSED if verdict.passed else FAILED


def _only_problem(path: Path, mode: Mode | None) -> Problem:
    problems = read_problems(str(path))
    if len(problems) != 1:
        raise ProblemError(f"{path}: holds {len(problems)} problems, one is needed")
    if mode is None:
        return problems[0]
    wanted = Cases if mode == "cases" else Pytest
    found = next((part for part in parts(problems[0].verifier) if isinstance(part, wanted)), None)
    if found is None and not (mode == "cases" and problems[0].cases):
        raise ProblemError(f"{path}: has no {'cases' if mode == 'cases' else 'pytest tests'} to judge by")
    return problems[0].model_copy(update={"verifier": found or Cases()})


def _details(problem: Problem, judgement: Judgement, verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON-able data, with what each case asked for."""
    details: dict[str, Any] = verdict.model_dump(mode="json") | {"output": judgement.output}
    if isinstance(problem.verifier, Cases):
        for shown, case in zip(details["cases"], problem.cases, strict=True):
            shown |= case.model_dump(mode="json", exclude_unset=True)
    return details


def _print(problem: Problem, judgement: Judgement, verdict: Verdict) -> None:
    console = plain_console()
    if judgement.cases:
        console.print(_table(problem, judgement))
    if judgement.output:
        console.print(f"printed: {judgement.output}")
    if verdict.usage.blocked:
        console.print(f"blocked: {', '.join(verdict.usage.blocked)}", soft_wrap=True)
    reason = f": {verdict.reason}" if verdict.reason else ""
    console.print(f"{verdict.status}{reason}; score {verdict.score:.3f}, reward {verdict.reward:.3f}", soft_wrap=True)
    if verdict.sandbox != "none":
        usage = verdict.usage
        console.print(
            f"in {verdict.sandbox}, {verdict.latency_s * 1e3:.0f} ms, "
            f"{usage.cpu_s * 1e3:.0f} ms of CPU time, {usage.memory_mb:.0f} MB"
        )


def _table(problem: Problem, judgement: Judgement) -> Table:
    if not isinstance(problem.verifier, Cases):
        table = Table("what", "outcome", "ms", "why")
        for result in judgement.cases:
            table.add_row(result.name, result.outcome, f"{result.latency_ms:.1f}", result.detail)
        return table
    table = Table("case", "input", "expected", "outcome", "ms", "what came")
    for number, (case, result) in enumerate(zip(problem.cases, judgement.cases, strict=True), 1):
        wanted = f"raises {case.raises}" if case.raises else json.dumps(case.expected)
        shown = (json.dumps(case.input), wanted, result.outcome, f"{result.latency_ms:.1f}", result.detail)
        table.add_row(str(number), *shown)
    return table
