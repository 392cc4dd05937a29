"""Problem files: three formats with one meaning, refused with name and place; and the order of the bank."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_core.errors import ProblemError
from rlm_core.files import write_jsonl
from rlm_core.problems import Problem
from rlm_core.sources import read_problems

CONTENT: list[dict[str, Any]] = [
    {"prompt": "Doppelt so groß", "entry_point": "double", "cases": [{"input": [2], "expected": 4}]},
    {
        "prompt": "Head or fail.",
        "entry_point": "head",
        "cases": [{"input": [[1.5, None]], "expected": 1.5}, {"input": [[]], "raises": "IndexError"}],
        "reference": "def head(x):\n    return x[0]\n",
        "float_tolerance": 0.001,
    },
]
WRITERS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    ".yaml": lambda content: yaml.safe_dump(content, allow_unicode=True),
    ".json": lambda content: json.dumps(content, ensure_ascii=False),
    ".jsonl": lambda content: "\n\n".join(json.dumps(entry, ensure_ascii=False) for entry in content),
    ".ndjson": lambda content: "\r\n".join(json.dumps(entry, ensure_ascii=False) for entry in content),
}


def problems(count: int) -> list[Problem]:
    return [Problem.model_validate({**CONTENT[0], "entry_point": f"f{i}"}) for i in range(count)]


def complaint(path: Path, text: str | bytes) -> str:
    """What `read_problems` says about a file with this content, after the file's name."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProblemError) as caught:
        read_problems(str(path))
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_format_of_a_file_does_not_change_its_problems(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"problems{suffix}"
    path.write_text(WRITERS[suffix](CONTENT), encoding="utf-8")
    assert read_problems(str(path)) == [Problem.model_validate(entry) for entry in CONTENT]


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("gzipped", [False, True])
def test_the_mark_with_which_some_editors_begin_a_file_is_no_part_of_it(
    tmp_path: Path, suffix: str, gzipped: bool
) -> None:
    content = WRITERS[suffix](CONTENT).encode("utf-8-sig")
    path = tmp_path / f"problems{suffix}{'.gz' * gzipped}"
    path.write_bytes(gzip.compress(content) if gzipped else content)
    assert read_problems(str(path)) == [Problem.model_validate(entry) for entry in CONTENT]


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_one_problem_needs_no_list(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"one{suffix}"
    path.write_text(json.dumps(CONTENT[0]))
    assert read_problems(str(path)) == [Problem.model_validate(CONTENT[0])]


def test_a_file_that_a_stage_wrote_can_be_read_whatever_its_texts_hold(tmp_path: Path) -> None:
    odd = problems(1)[0].model_copy(update={"prompt": "a\nb\rc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i"})
    path = write_jsonl(tmp_path / "problems.jsonl", [odd])
    assert read_problems(str(path)) == [odd]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", "", "holds no problems"),
        ("a.yaml", "# nothing\n", "holds no problems"),
        ("a.json", "[]", "holds no problems"),
        ("a.jsonl", "\n\n", "holds no problems"),
        ("a.yaml", "- prompt: [", "is malformed: "),
        ("a.yaml", "- !!python/object/apply:os.getcwd []", "is malformed: "),
        ("a.json", "", "is malformed: "),
        ("a.json", "[" * 100_000, "is malformed: "),
        ("a.yaml", "just words", "problem 1: record: "),
        ("a.yaml", b"- prompt: \xff", "is not UTF-8 text"),
        ("a.json", json.dumps([CONTENT[0], {"prompt": "x"}]), "problem 2: cases: at least one is needed"),
        (
            "a.jsonl",
            json.dumps(CONTENT[0]) + "\n\n" + '{"prompt": 3}',
            "line 3: prompt: Input should be a valid string",
        ),
        ("a.yaml", json.dumps([CONTENT[0] | {"cases": []}]), "problem 1: cases: at least one is needed"),
        (
            "a.json",
            json.dumps(CONTENT[0] | {"cases": [{"input": [1]}]}),
            "problem 1: cases.0: a case needs",
        ),
        ("a.json", json.dumps(CONTENT[0] | {"promt": ""}), "problem 1: promt: Extra inputs are not permitted"),
        ("a.json", json.dumps(CONTENT[0] | {"float_tolerance": float("nan")}), "problem 1: Out of range float values"),
        (
            "a.yaml",
            "- {prompt: x, entry_point: f, cases: [{input: [2024-01-01], expected: 1}]}",
            "problem 1: Object of type",
        ),
        ("a.json", "[" * 900 + "]" * 900, "problem 1: record: "),
        ("a.json", json.dumps([CONTENT[0], CONTENT[1], CONTENT[0]]), "double is there twice"),
        ("a.json", json.dumps([CONTENT[0], CONTENT[0] | {"domain": "maths"}]), "double is there twice"),
    ],
    ids=range(20),
)
def test_a_bad_file_is_refused_with_name_and_place(tmp_path: Path, name: str, text: str | bytes, expected: str) -> None:
    assert complaint(tmp_path / name, text).startswith(expected)


def test_a_line_that_is_not_json_is_named_by_its_number(tmp_path: Path) -> None:
    good = json.dumps(CONTENT[0])
    assert "line 3" in complaint(tmp_path / "a.jsonl", f'{good}\n\n{{"prompt": \n')


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"none\.yaml: cannot be read: No such file"):
        read_problems(str(tmp_path / "none.yaml"))
    with pytest.raises(ProblemError, match="cannot be read: Is a directory"):
        read_problems(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["bank:exam", "bank:", "bank:../config", "bank:../bank/train", "bank:train.yaml", "bank:train[]"]
)
def test_an_unknown_part_of_the_bank_is_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_problems(name)
    expected = f"{name}: no such part of the bank; there are bank:benchmark, bank:holdout, bank:train"
    assert str(caught.value).startswith(expected)


def test_a_part_of_the_bank_can_be_cut_down_to_levels() -> None:
    every = read_problems("bank:train")
    starters, both = read_problems("bank:train[starter]"), read_problems("bank:train[starter,easy]")
    assert starters == [problem for problem in every if problem.difficulty == "starter"] != []
    assert both == [problem for problem in every if problem.difficulty in ("starter", "easy")]
    assert len(starters) < len(both) < len(every)


def test_an_unknown_level_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        ProblemError, match=r"bank:train\[easy,hard\]: no level hard; there are starter, easy, middling"
    ):
        read_problems("bank:train[easy,hard]")


def test_the_parts_of_the_bank_are_different_files() -> None:
    firsts = {read_problems(f"bank:{part}")[0].id for part in ("train", "benchmark", "holdout")}
    assert len(firsts) == 3


@pytest.mark.parametrize("name", ["a\0b.jsonl", "a\0b.jsonl.gz", "a\0b.yaml"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(ProblemError, match="cannot be read: embedded null byte"):
        read_problems(name)
