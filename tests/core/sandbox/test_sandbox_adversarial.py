"""No candidate is paid without doing the work, none that does the work goes unpaid, and none touches the outside."""

import os
import secrets
import time
from pathlib import Path

import pytest

from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers import Answer, Bench, judge, judge_cases

from .candidates import CANDIDATES, Must
from .conftest import PATIENT, SHORT, Canaries, each_sandbox, limits_of_parent, processes_of_session

DIRECTORY = Path(__file__).with_name("adversarial")
LIMITS = SHORT
LONGEST_S = 4.0

TESTED = Problem.model_validate(
    {
        "prompt": "Write solve(n) that returns n!",
        "verifier": {
            "kind": "pytest",
            "tests": """
from main import solve
def test_0(): assert solve(0) == 1 and type(solve(0)) is int
def test_5(): assert solve(5) == 120 and type(solve(5)) is int
def test_7(): assert solve(7) == 5040 and type(solve(7)) is int
""",
        },
        "test_ids": ["test_0", "test_5", "test_7"],
    }
)
"""The same problem with tests that are as strict as the comparison of values."""


def test_the_table_names_every_candidate() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.py")} == set(CANDIDATES)


@each_sandbox
@pytest.mark.parametrize("mode", ["cases", "pytest"])
@pytest.mark.parametrize("name", CANDIDATES)
def test_candidate(name: str, mode: str, sandbox: Sandbox, canaries: Canaries, factorial: Problem) -> None:
    must = CANDIDATES[name]
    uncounted = sandbox.name == "seatbelt" or (os.geteuid() != 0 and sandbox.name.startswith("landlock"))
    if must.threads_counted and uncounted:
        pytest.skip("threads are not counted in this sandbox; see docs/sandbox.md")
    if must.of_linux and sandbox.name == "seatbelt":
        pytest.skip("it goes by something that only Linux has")
    code = canaries.aim((DIRECTORY / f"{name}.py").read_bytes().decode("utf-8", "surrogateescape"))
    zygote = sandbox._zygotes.code.pid
    before = processes_of_session(zygote)
    for _ in range(must.runs):
        started = time.monotonic()
        with limits_of_parent(sandbox, patience=PATIENT.patience if must.status == "passed" else SHORT.patience):
            judgement = judge(Answer(code, code), factorial if mode == "cases" else TESTED, Bench(sandbox))
        assert time.monotonic() - started < LONGEST_S
        judgement.model_dump_json()
        _compare(judgement, must if mode == "cases" else Must(must.status))
    assert sandbox._zygotes.code.pid == zygote, "the candidate brought down the zygote"
    assert processes_of_session(zygote) == before, "a process of the candidate is left"
    canaries.check()


@each_sandbox
def test_the_nonce_is_what_stops_answers_in_advance(
    sandbox: Sandbox, factorial: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a nonce that can be guessed the attack succeeds: it is real, and it is the nonce that stops it."""
    monkeypatch.setattr(secrets, "token_hex", lambda length: "0" * 2 * length)
    attack = (DIRECTORY / "101_answer_in_advance.py").read_text()
    assert judge_cases(sandbox, attack, factorial).status == "passed"


def _compare(judgement, must: Must) -> None:  # type: ignore[no-untyped-def]
    assert must.status in (judgement.status, "either"), judgement
    assert must.reason in judgement.reason, judgement
    if must.outcomes:
        outcomes = {case.outcome for case in judgement.cases} - {"passed"}
        assert outcomes <= set(must.outcomes), judgement
