"""`rlm` as a person calls it: what goes wrong is one clear line and an exit code, and nothing is written."""

import json
from pathlib import Path

import pytest

from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef
from tests import tiny
from tests.command import Rlm, Settings, assert_refused, write
from tests.samples.adapters import trained_adapter


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["status"], ["history"], ["exam"], ["compare"], ["rollback"], ["prune"], ["verify"], ["doctor"]],
)
def test_every_command_has_help(rlm: Rlm, command: list[str]) -> None:
    done = rlm(*command, "--help")
    assert done.code == 0
    assert "Usage" in done.out


def test_unknown_commands_and_options_exit_2(rlm: Rlm) -> None:
    assert_refused(rlm("nonsense"), 2, "nonsense")
    assert_refused(rlm("run", "--nonsense"), 2, "--nonsense")
    assert_refused(rlm("run", "-n", "0"), 2, "--iterations", "1")


def test_a_missing_config_is_named(rlm: Rlm) -> None:
    assert_refused(rlm("run", "-c", "nothing.yaml"), 2, "nothing.yaml", "No such file")


@pytest.mark.parametrize(
    ("section", "key", "value", "parts"),
    [
        ("rollout", "temprature", 1.0, ["rollout.temprature", "did you mean temperature?"]),
        ("rollout", "group_size", 1, ["rollout.group_size = 1", "greater than or equal to 2"]),
        ("rollout", "group_size", "8", ["rollout.group_size = '8'", "integer"]),
        ("generate", "bank", "bank:nothing", ["bank:nothing", "bank:train"]),
        ("generate", "bank", "bank:train[hard]", ["hard", "starter"]),
        ("evaluate", "holdout", "/no/such/suite.yaml", ["/no/such/suite.yaml", "No such file"]),
        ("evaluate", "holdout", "empty.yaml", ["empty.yaml", "no problems"]),
        ("evaluate", "holdout", "broken.jsonl", ["broken.jsonl", "line 2", "entry_point"]),
        ("model", "base", "/no/such/model", ["/no/such/model", "no such directory"]),
        ("model", "adapter", "/no/such/adapter", ["/no/such/adapter", "adapter_config.json"]),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    rlm: Rlm,
    settings: Settings,
    tmp_path: Path,
    section: str,
    key: str,
    value: object,
    parts: list[str],
) -> None:
    (tmp_path / "empty.yaml").write_text("")
    good = tiny.problem(1).model_dump_json()
    (tmp_path / "broken.jsonl").write_text(good + '\n{"prompt": "x", "entry_point": "not a name", "cases": []}\n')
    settings.setdefault(section, {})[key] = value
    assert_refused(rlm("run", "-c", write(tmp_path, settings)), 2, *parts)
    assert not (tmp_path / "project").exists()


def test_an_adapter_for_another_base_is_refused(rlm: Rlm, settings: Settings, tiny_model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "config.json").write_text((other / "config.json").read_text().replace("{", '{"note": "another", ', 1))
    adapter: AdapterRef = trained_adapter(load_policy(str(other)), tmp_path / "adapter")
    settings["model"]["adapter"] = adapter.path
    assert_refused(rlm("run", "-c", write(tmp_path, settings)), 2, str(other), str(tiny_model))


@pytest.mark.parametrize("command", [["status"], ["history"], ["rollback", "0"], ["prune"]])
def test_a_project_without_iterations_says_so(rlm: Rlm, settings: Settings, tmp_path: Path, command: list[str]) -> None:
    assert_refused(rlm(*command, "-c", write(tmp_path, settings)), 5, "no iteration was run")
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_doctor_ends_with_what_it_found(rlm: Rlm, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("rlm_cli.doctor.examine_machine", lambda: code)
    assert rlm("doctor").code == code


def test_a_case_that_cannot_be_run_is_refused_before_any_work(rlm: Rlm, settings: Settings, tmp_path: Path) -> None:
    impossible = tiny.problem(1).model_dump(mode="json")
    impossible["cases"][1] = {"input": [json.loads("[" * 100 + "]" * 100)], "expected": 1}
    (tmp_path / "impossible.json").write_text(json.dumps(impossible))
    settings["evaluate"]["holdout"] = "impossible.json"
    assert_refused(rlm("run", "-c", write(tmp_path, settings)), 2, "f: ", "case 2", "nests deeper than 60")


def test_a_problem_whose_reference_fails_its_tests_is_refused_before_any_work(
    rlm: Rlm, settings: Settings, tmp_path: Path
) -> None:
    tests = "from main import double\ndef test_it(): assert double(2) == 5\n"
    wrong = {"prompt": "?", "verifier": {"kind": "pytest", "tests": tests}, "reference": "def double(n): return 2 * n"}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    settings["evaluate"]["holdout"] = "wrong.json"
    shown = ("its reference does not pass its own tests here", "test_it: assert 4 == 5")
    assert_refused(rlm("run", "-c", write(tmp_path, settings)), 2, *shown)


@pytest.mark.parametrize(
    ("answer", "code", "shown"),
    [
        (tiny.answer(2), 0, ["passed", "reward 1.000"]),
        (tiny.answer(3), 1, ["5 of 5 cases failed", "returned 3", "reward 0.000"]),
        ("def f(n):\n    import os\n    os._exit(0)\n", 1, ["crashed"]),
        ("def g(n):\n    return n\n", 1, ["f"]),
        ("def f(n) return n", 1, ["SyntaxError"]),
    ],
)
def test_an_answer_is_judged_by_hand(rlm: Rlm, tmp_path: Path, answer: str, code: int, shown: list[str]) -> None:
    (tmp_path / "p.json").write_text(tiny.problem(2).model_dump_json())
    (tmp_path / "a.py").write_text(answer)
    done = rlm("verify", "p.json", "a.py")
    assert done.code == code, done.err
    for part in shown:
        assert part in done.out


def test_a_verdict_can_be_had_as_json(rlm: Rlm, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(tiny.problem(2).model_dump_json())
    (tmp_path / "a.py").write_text(tiny.answer(1))
    verdict = json.loads(rlm("verify", "p.json", "a.py", "--json").out)
    assert (verdict["status"], verdict["reward"], len(verdict["cases"])) == ("failed", 0.0, 5)


def test_what_cannot_be_judged_exits_2(rlm: Rlm, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(tiny.problem(2).model_dump_json())
    (tmp_path / "a.py").write_text(tiny.answer(2))
    assert_refused(rlm("verify", "p.json", "missing.py"), 2, "missing.py")
    assert_refused(rlm("verify", "missing.json", "a.py"), 2, "missing.json")
    assert_refused(rlm("verify", "bank:train", "a.py"), 2, "116 problems")
    assert_refused(rlm("verify", "p.json", "a.py", "--sandbox", "nothing"), 2, "nothing")
