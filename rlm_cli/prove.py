"""`rlm prove`: which problems of a file are proved, before a night is spent on them."""

import json
from pathlib import Path

from rich.table import Table

from rlm_cli.terminal import plain_console
from rlm_core.config import FilterSection, VerifySection
from rlm_core.phrases import number_of
from rlm_core.problems import Problem
from rlm_core.proposals.bank_proofs import open_bank_proofs
from rlm_core.records import Refusal
from rlm_core.sources import read_problems
from rlm_core.verifiers.check import check_problems

PROVED, REFUSED = 0, 1


def prove_file(path: Path, verify: VerifySection, section: FilterSection, as_json: bool) -> int:
    """Prove each problem of a file as an iteration would, but for likeness to exams, and print what is refused.

    No model is asked: what has no reference is refused here, whatever `section.majority` says.

    Returns:
        0 when all are proved, 1 when not.

    Raises:
        ProblemError: the file cannot be read, or a problem cannot be judged at all.
        SandboxUnavailable: the configured sandbox cannot be had.
    """
    problems = read_problems(str(path))
    check_problems(problems, verify.limits, verify.functions)
    with open_bank_proofs(problems, verify, section) as proofs:
        found = [(problem, proofs.proved(problem)) for problem in problems]
    refused = [(problem, each) for problem, each in found if isinstance(each, Refusal)]
    if as_json:
        for problem, each in refused:
            print(json.dumps({"problem": problem.called, **each.model_dump(mode="json")}))
    else:
        trusted = [each for _, each in found if isinstance(each, Problem) and each.reference is None]
        _print(refused, len(problems), len(trusted))
    return REFUSED if refused else PROVED


def _print(refused: list[tuple[Problem, Refusal]], of: int, trusted: int) -> None:
    console = plain_console()
    if refused:
        table = Table("problem", "rule", "value", "limit", "why")
        for problem, each in refused:
            table.add_row(problem.called, each.rule, _shown(each.value), _shown(each.limit), each.reason)
        console.print(table)
    proved = of - len(refused) - trusted
    console.print(
        f"{proved} of {number_of(of, 'problem')} proved, "
        f"trusted without a reference: {trusted}, refused: {len(refused)}"
    )


def _shown(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float | int) else str(value)
