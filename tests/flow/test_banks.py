"""Whole iterations on banks whose problems have no cases: judged by their texts, by tests, by reasoning-gym."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.iterate import iterate
from rlm_core.problems import Problem
from rlm_core.records import Rejection, Verdict
from rlm_core.sources import read_problems
from tests import small_gym, tiny
from tests.conftest import MakeConfig

INSTALLED = importlib.util.find_spec("reasoning_gym") is not None
STRICT = {"max_similarity": 0.8}


def run_of(config: Path, number: int = 1) -> Path:
    return config.parent / "project" / "runs" / f"{number:04}"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def asked(run: Path) -> list[Problem]:
    return [Problem.model_validate(row) for row in lines(run / "problems.jsonl")]


def verdicts(run: Path) -> list[Verdict]:
    return [Verdict.model_validate(row) for path in sorted((run / "verdicts").iterdir()) for row in lines(path)]


def refused(run: Path) -> list[Rejection]:
    return [Rejection.model_validate(row) for row in lines(run / "problems.rejections.jsonl")]


def test_exercises_of_reasoning_gym_are_trained_on_but_for_those_of_the_exams(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small package of that name. Two iterations: the second rehearses answers of the first one."""
    small_gym.install(tmp_path / "gym", monkeypatch)
    config = exercises(make_config, "adding")
    first, second = iterate(str(config)), iterate(str(config))
    judged = judged_exercises(run_of(config), "adding")
    assert {verdict.reward for verdict in judged} >= {1.0, 0.125}  # half of the data set's score of .25
    assert first["decision"]["outcome"] == "accepted"
    assert first["summary"]["trained_steps"] > 0 < second["summary"]["rehearsed"]


@pytest.mark.skipif(not INSTALLED, reason="reasoning-gym, an extra of some 300 MB, is not installed")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # its own
def test_exercises_of_the_real_reasoning_gym_are_trained_on(make_config: MakeConfig) -> None:
    """The tiny model solves none of them, but some answers hold the right number."""
    config = exercises(make_config, "letter_counting")
    result = iterate(str(config))
    judged = judged_exercises(run_of(config), "letter_counting")
    assert len({verdict.reward for verdict in judged}) > 1
    assert result["summary"]["trained_steps"] > 0


def exercises(make_config: MakeConfig, data_set: str) -> Path:
    """A config whose bank and exams are of one data set; the bank's last two are the benchmark's first two."""
    name = f"reasoning-gym:{data_set}"
    return make_config(
        generate={"bank": f"{name}[size=8,seed=14]", "problems": 8},
        filter=STRICT,
        rollout={"prompt_suffix": ""},
        verify={"partial_credit": 0.5},
        train={"rehearsal": {"share": 0.2}},
        evaluate={"benchmark": f"{name}[size=10,seed=20]", "holdout": f"{name}[size=6,seed=40]"},
    )


def judged_exercises(run: Path, data_set: str) -> list[Verdict]:
    """The verdicts of such an iteration, after a look at what was asked and how it was judged."""
    bank = read_problems(f"reasoning-gym:{data_set}[size=8,seed=14]")
    assert {problem.id for problem in asked(run)} == {problem.id for problem in bank[:6]}
    assert [each.rule for each in refused(run)] == ["duplicate"] * 2
    assert all("of the benchmark" in each.reason for each in refused(run))
    assert lines(run / "mutants.jsonl") == []
    judged = verdicts(run)
    assert len(judged) == 36
    assert {(verdict.sandbox, verdict.status == "infrastructure") for verdict in judged} == {("none", False)}
    return judged


VERIFIERS = {
    "exact": ({"kind": "exact", "expected": "def f(n):\n    return n + 2"}, tiny.answer(2)),
    "regex": ({"kind": "regex", "pattern": r"n \+ 2\s*$"}, "It is n + 2"),
    "numeric": ({"kind": "numeric", "expected": 2}, "Two, that is 2."),
    "json_schema": ({"kind": "json_schema", "json_schema": {"type": "object"}}, "{}"),
    "pytest": ({"kind": "pytest", "tests": "from main import f\ndef test_one(): assert f(1) == 3\n"}, tiny.answer(2)),
    "all": ({"kind": "all", "of": [{"kind": "cases"}, {"kind": "regex", "pattern": "return"}]}, tiny.answer(2)),
    "any": ({"kind": "any", "of": [{"kind": "exact", "expected": "3"}, {"kind": "regex", "pattern": "3"}]}, None),
}
"""With an answer that is right; the tiny model gives such a one to all but one of them."""
WRONG = {
    "reference": ({"kind": "exact", "expected": "five"}, "six"),
    "trivial": ({"kind": "regex", "pattern": "^[^!]*$"}, "So it is."),
}


def bank(verifiers: dict[str, Any]) -> str:
    """A file in YAML, one problem for each verifier, asked as the tiny model is used to."""
    problems = [
        {
            "prompt": tiny.problem(2, 60 + number).prompt,
            "entry_point": "f",
            "cases": [{"input": [1], "expected": 3}],
            "verifier": verifier,
            "reference": reference,
        }
        for number, (verifier, reference) in enumerate(verifiers.values())
    ]
    return yaml.safe_dump(problems)


@pytest.mark.parametrize("proved", [True, False])
def test_a_file_of_problems_with_verifiers_of_all_kinds_is_proved_and_trained_on(
    make_config: MakeConfig, tmp_path: Path, proved: bool
) -> None:
    """Those that are wrong are refused, unless the file is trusted; the others teach like any."""
    (tmp_path / "bank.yaml").write_text(bank(VERIFIERS | WRONG))
    config = make_config(
        generate={"bank": str(tmp_path / "bank.yaml"), "problems": 9, "prove_bank": proved},
        filter=STRICT,
        rollout={"prompt_suffix": "", "shard_problems": 5},
    )
    result = iterate(str(config))
    run = run_of(config)
    assert sorted(each.rule for each in refused(run)) == (sorted(WRONG) if proved else [])
    problems = {problem.id: problem for problem in asked(run)}
    assert len(problems) == (7 if proved else 9)
    judged = verdicts(run)
    assert len(judged) == 6 * len(problems)
    passed = {problems[verdict.problem_id].verifier.kind for verdict in judged if verdict.passed}
    assert passed == VERIFIERS.keys() - {"json_schema"}
    assert all((verdict.sandbox == "none") != problems[verdict.problem_id].asks_for_code for verdict in judged)
    assert result["summary"]["trained_steps"] > 0
    assert lines(run / "mutants.jsonl") == []
