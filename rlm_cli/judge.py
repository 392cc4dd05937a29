"""`rlm verify`: one answer to one problem, judged by hand as training and exams judge it."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rlm_core.errors import InfrastructureFault, ProblemError, SandboxUnavailable
from rlm_core.files import read_given_text
from rlm_core.records import Problem, Verdict
from rlm_core.sandbox import open_sandbox
from rlm_core.sources.problem_files import read_problems
from rlm_core.verifiers.cases import Judgement, judge_cases
from rlm_core.verify import judged

PASSED, FAILED, NOT_JUDGED = 0, 1, 2


def judge_by_hand(
    problem_file: Path, answer_file: Path, sandbox_name: str, partial_credit: float, as_json: bool
) -> int:
    """Judge the code in a file and print the verdict.

    Returns:
        0 when the answer passed, 1 when it failed, 2 when it could not be judged.

    Raises:
        ProblemError: a file cannot be read, or the problem file does not hold exactly one problem.
    """
    problem = _only_problem(problem_file)
    code = read_given_text(answer_file, str(answer_file), ProblemError)
    started = time.monotonic()
    try:
        with open_sandbox(sandbox_name) as sandbox:
            judgement, name = judge_cases(sandbox, code, problem), sandbox.name
    except (InfrastructureFault, SandboxUnavailable) as fault:
        Console(stderr=True, highlight=False).print(f"rlm: could not be judged: {fault}", soft_wrap=True)
        return NOT_JUDGED
    verdict = judged(judgement, problem, answer_file.name, name, time.monotonic() - started, partial_credit)
    if as_json:
        print(json.dumps(verdict.model_dump(mode="json") | {"output": judgement.output}))
    else:
        _print(problem, judgement, verdict)
    return PASSED if verdict.passed else FAILED


def _only_problem(path: Path) -> Problem:
    problems = read_problems(str(path))
    if len(problems) != 1:
        raise ProblemError(f"{path}: holds {len(problems)} problems, one is needed")
    return problems[0]


def _print(problem: Problem, judgement: Judgement, verdict: Verdict) -> None:
    console = Console(highlight=False, markup=False)
    table = Table("case", "input", "expected", "outcome", "what came")
    for number, (case, result) in enumerate(zip(problem.cases, judgement.cases, strict=True), 1):
        expected = f"raises {case.raises}" if case.raises else json.dumps(case.expected)
        table.add_row(str(number), json.dumps(case.input), expected, result.outcome, result.detail)
    console.print(table)
    if judgement.output:
        console.print(f"printed: {judgement.output}")
    reason = f": {verdict.reason}" if verdict.reason else ""
    console.print(
        f"{verdict.status}{reason}; reward {verdict.reward:.3f}, in {verdict.sandbox}, {verdict.latency_s * 1e3:.0f} ms"
    )
