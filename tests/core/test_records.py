"""Records refuse what does not fit where it is made, and know whether their files are intact."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rlm_core.problems import Case, Problem
from rlm_core.records import ExamReport, FileRef, ProblemScore, Rollout, StageResult
from tests.samples.exam_reports import report as made_up

SMALLEST = '{"prompt": "…", "entry_point": "solve", "cases": [{"input": [5], "expected": 120}]}'


def problem(**changes: Any) -> Problem:
    return Problem.model_validate(json.loads(SMALLEST) | changes)


def rollout(**changes: Any) -> Rollout:
    fields: dict[str, Any] = {
        "problem_id": "p",
        "index": 0,
        "seed": 1,
        "prompt_tokens": (1, 2),
        "tokens": (3, 4),
        "logprobs": (-0.5, -0.25),
        "text": "x",
        "finish_reason": "stop",
    }
    return Rollout(**(fields | changes))


def report(*samples: int, k: int = 4) -> ExamReport:
    scores = [ProblemScore(problem_id=str(i), entry_point="f", samples=n, correct=0) for i, n in enumerate(samples)]
    return made_up([], k, pass_at={1: 0.0}, problems=tuple(scores))


def test_the_smallest_problem_parses() -> None:
    parsed = Problem.model_validate_json(SMALLEST)
    assert parsed.cases == (Case(input=[5], expected=120),)
    assert (parsed.reference, parsed.domain, parsed.float_tolerance, parsed.unordered) == (None, "general", 0.0, False)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        problem().prompt = "other"  # type: ignore[misc]


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="entry_pont"):
        problem(entry_pont="f")
    with pytest.raises(ValidationError, match="exepcted"):
        problem(cases=[{"input": [1], "expected": 1, "exepcted": 1}])


@pytest.mark.parametrize(
    "changes",
    [{"prompt": ""}, {"cases": []}, {"float_tolerance": -1}, {"cases": [{"input": 5, "expected": 1}]}],
    ids=["no-prompt", "no-cases", "negative-tolerance", "input-is-no-list"],
)
def test_a_problem_that_cannot_be_posed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        problem(**changes)


@pytest.mark.parametrize(
    "name", ["", "a b", "1f", "f()", "os.system", "f;g", "def f", "../f", "class", "return", "None"]
)
def test_an_entry_point_that_no_function_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="identifier"):
        problem(entry_point=name)


@pytest.mark.parametrize("name", ["f", "_private", "two_words", "f2", "größe"])
def test_an_entry_point_that_a_function_can_have_is_fine(name: str) -> None:
    assert problem(entry_point=name).entry_point == name


def test_a_case_needs_an_expected_value_or_an_exception() -> None:
    with pytest.raises(ValidationError, match="'expected' or 'raises'"):
        Case.model_validate({"input": [1]})
    assert Case.model_validate({"input": [1], "raises": "ValueError"}).raises == "ValueError"
    for unknown in ("NoSuchError", "print"):
        with pytest.raises(ValidationError, match=f"raises '{unknown}', which is not a builtin exception"):
            Case.model_validate({"input": [1], "raises": unknown})


def test_an_expected_null_is_a_value() -> None:
    assert Case.model_validate_json('{"input": [], "expected": null}').expected is None


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "other"},
        {"entry_point": "other"},
        {"cases": [{"input": [5], "expected": 121}]},
        {"cases": [{"input": [5], "expected": 120.0}]},
        {"cases": [{"input": [6], "expected": 120}]},
        {"cases": [{"input": [5], "raises": "ValueError"}]},
        {"cases": [{"input": [5], "expected": 120}] * 2},
        {"float_tolerance": 0.1},
        {"unordered": True},
    ],
    ids=str,
)
def test_the_id_depends_on_what_decides_a_verdict_and_on_what_is_shown(changes: dict[str, Any]) -> None:
    assert problem(**changes).id != problem().id


@pytest.mark.parametrize(
    "changes",
    [
        {"reference": "def solve(n): ..."},
        {"provenance": {"source": "model"}},
        {"domain": "maths"},
        {"difficulty": "hard"},
        {"signature": "solve(n: int) -> int"},
    ],
    ids=str,
)
def test_the_id_does_not_depend_on_what_is_only_known_about_a_problem(changes: dict[str, Any]) -> None:
    assert problem(**changes).id == problem().id


def test_the_id_outlives_a_round_trip() -> None:
    again = Problem.model_validate_json(problem().model_dump_json())
    assert (again, again.id) == (problem(), problem().id)


def test_a_changed_copy_has_its_own_id() -> None:
    original = problem()
    assert original.id != original.model_copy(update={"prompt": "other"}).id


@pytest.mark.parametrize("changes", [{"problem_id": "q"}, {"index": 1}, {"seed": 2}, {"tokens": (3, 5)}], ids=str)
def test_a_rollout_has_its_own_id(changes: dict[str, Any]) -> None:
    assert rollout(**changes).id != rollout().id


def test_the_text_of_a_rollout_does_not_decide_its_id() -> None:
    assert rollout(text="y").id == rollout().id


def test_a_file_is_intact_until_it_is_altered_cut_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("content")
    reference = FileRef.of(path)
    assert reference.damage() is None
    for content in ("contend", "conten"):
        path.write_text(content)
        assert reference.damage() == f"{path} was altered"
    path.write_text("content")
    assert reference.damage() is None
    path.unlink()
    assert reference.damage() == f"{path} cannot be read: No such file or directory"
    path.mkdir()
    assert reference.damage() == f"{path} cannot be read: Is a directory"


def test_a_stage_is_intact_when_all_its_files_are(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("x")
    result = StageResult(files={path.name: FileRef.of(path) for path in paths})
    assert result.damage() is None
    paths[1].write_text("")
    assert result.damage() == f"{paths[1]} was altered"
    assert StageResult(figures={"n": 1}).damage() is None


def test_a_stored_result_names_its_files_from_its_directory_on(tmp_path: Path) -> None:
    inside, outside = tmp_path / "run" / "deep" / "a", tmp_path / "b"
    inside.parent.mkdir(parents=True)
    for path in (inside, outside):
        path.write_text("x")
    result = StageResult(files={"a": FileRef.of(inside), "b": FileRef.of(outside)})
    stored = result.within(tmp_path / "run")
    assert {name: file.path for name, file in stored.files.items()} == {"a": "deep/a", "b": str(outside)}
    assert stored.at(tmp_path / "run") == result
    (tmp_path / "run").rename(tmp_path / "moved")
    assert stored.at(tmp_path / "moved").damage() is None


@pytest.mark.parametrize(("samples", "complete"), [((4, 4), True), ((4, 3), False), ((0, 4), False), ((), False)])
def test_an_exam_is_complete_when_every_sample_was_judged(samples: tuple[int, ...], complete: bool) -> None:
    assert report(*samples).complete is complete


def test_a_share_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValidationError, match="pass_at"):
        ExamReport.model_validate(report(4).model_dump() | {"pass_at": {1: 1.5}})
