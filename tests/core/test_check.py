"""What is wrong with a problem is found before any work, and the problem is named."""

from pathlib import Path
from typing import Any

import pytest

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem
from rlm_core.sandbox import Limits
from rlm_core.sources import read_problems
from rlm_core.verifiers.check import check_problems

DEEP: Any = []
for _ in range(70):
    DEEP = [DEEP]
CASES = {"entry_point": "f", "cases": [{"input": [1], "expected": DEEP}]}


def text_problem(**verifier: Any) -> Problem:
    return Problem.model_validate({"prompt": "Tell me something.\nNow.", "verifier": verifier})


BAD_SCHEMA = {"kind": "json_schema", "json_schema": {"type": "wat"}}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem.model_validate({"prompt": "p", **CASES}), "f: case 1: its expected value nests deeper than 60"),
        (text_problem(**BAD_SCHEMA), r"'Tell me something.\nNow.': its schema is none: $.type: 'wat'"),
        (text_problem(kind="any", of=[{"kind": "all", "of": [BAD_SCHEMA]}]), r"'Tell me something.\nNow.': its schema"),
        (
            text_problem(kind="weighted", of=[{"weight": 1, "verifier": {"kind": "function", "function": "a:b"}}]),
            r"'Tell me something.\nNow.': the verifier a:b is not listed in verify.functions of the config",
        ),
        (
            text_problem(kind="function", function="no_such:f"),
            r"'Tell me something.\nNow.': the verifier no_such:f cannot",
        ),
        (
            text_problem(kind="reasoning_gym", dataset="nothing", entry={}),
            r"'Tell me something.\nNow.': reasoning-gym ",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_problem(problem: Problem, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check_problems([problem], Limits(), ["no_such:f"])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_can_be_judged_passes_without_a_process_for_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_core.verifiers.scorer._start", lambda _descriptor: pytest.fail("it was started"))
    good = [text_problem(kind="exact", expected="x"), text_problem(kind="function", function="math:sqrt")]
    check_problems([*good, *read_problems("bank:holdout")], Limits(), ["math:sqrt"])


def test_a_file_with_a_bad_expression_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "problems.yaml"
    path.write_text("- prompt: p\n  verifier: {kind: regex, pattern: '('}\n")
    with pytest.raises(ProblemError, match=r"problems\.yaml: problem 1: .*is not a regular expression"):
        read_problems(str(path))
