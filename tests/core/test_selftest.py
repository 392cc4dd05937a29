"""The self-test holds in every sandbox of this machine, and says so when one does not hold or a judge is fooled."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlm_core.records import Usage
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sandbox.backends import Launch, landlock
from rlm_core.sandbox.child import Reply
from rlm_core.sandbox.interpreter import INSIDE, Interpreter
from rlm_core.selftest import LIMITS, MODES, Mode, SelfTest, answers, canaries, machinery, run, self_test
from rlm_core.selftest.answers import BundledAnswer, bundled
from rlm_core.selftest.canaries import VARIABLE, planted
from rlm_core.verifiers import Bench, Judgement, prepare
from rlm_core.verifiers import cases as value_mode
from rlm_core.verifiers import pytests as pytest_mode
from rlm_core.verifiers.replies import Described, exception_of
from tests.core.sandbox.conftest import each_sandbox, needs_landlock

CASES: tuple[Mode, ...] = ("cases",)
ATTACKS = {answer.name for answer in bundled().answers if answer.attack}
WRONG = {answer.name for answer in bundled().answers if answer.must == "fail"}
HONEST = {answer.name for answer in bundled().answers if answer.must == "pass"}
NOTHING_TO_FIND = "read-expected"
"""The one attack that no sandbox stops: what it looks for is in another process."""


def open_named(name: str) -> Callable[[], Sandbox]:
    return lambda: open_sandbox(name, LIMITS)


def weak_sandbox(directory: Path, *left_out: str) -> Sandbox:
    """A sandbox whose children leave out steps of the lockdown, or all of it, and whose opening check is blind."""
    shutil.copytree(INSIDE, directory / "inside")
    lockdown, child = directory / "inside" / "lockdown.py", directory / "inside" / "child.py"
    text = lockdown.read_text()
    for step in left_out or ("os.umask",):
        assert text.count(f"    {step}(") == 1
        text = text.replace(f"    {step}(", "    len((0,)) or (" if left_out else "    return\n    os.umask(")
    lockdown.write_text(text)
    child.write_text(child.read_text().replace("if not _refused(attempt)]", "if False]"))

    def launch(interpreter: Interpreter) -> Launch:
        return replace(landlock.BACKEND.launch(interpreter), directory=directory)

    return Sandbox(replace(landlock.BACKEND, name="weak", title="weak", launch=launch), LIMITS, hash_seed=0)


def not_held(report: SelfTest) -> dict[str, str]:
    """Why it did not hold, by the answer's name."""
    return {tried.name: "; ".join(tried.why_not) for tried in report.tried if not tried.held}


# ------------------------------------------------------------------------------------------------------------ it holds


@each_sandbox
def test_the_sandboxes_of_this_machine_hold(sandbox_name: str) -> None:
    report = self_test(open_named(sandbox_name))
    assert [(tried.name, tried.mode, tried.why_not) for tried in report.tried if not tried.held] == []
    assert {tried.mode for tried in report.tried} == {"cases", "pytest"}
    assert report.holds
    assert report.verdict == "holds"
    assert {tried.name for tried in report.tried} == ATTACKS | WRONG | HONEST
    assert report.sandbox.startswith(sandbox_name)
    assert SelfTest.model_validate_json(report.model_dump_json()) == report


@each_sandbox
def test_nothing_is_left_of_a_self_test(sandbox_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(os.environ)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    self_test(open_named(sandbox_name), CASES)
    assert list(tmp_path.iterdir()) == []
    assert sorted(os.environ) == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert not [path for place in ("/tmp", "/var/tmp", "/dev/shm") for path in Path(place).glob("rlm-selftest-*")]


# ----------------------------------------------------------------------------------------------------- it does not hold


@needs_landlock
@pytest.mark.parametrize("mode", MODES)
def test_every_attack_is_real_and_noticed_where_nothing_stops_it(tmp_path: Path, mode: Mode) -> None:
    report = self_test(lambda: weak_sandbox(tmp_path), [mode])
    found = not_held(report)
    assert set(found) == ATTACKS - {NOTHING_TO_FIND}
    assert not report.holds
    assert report.verdict.startswith(f"does not hold: read-bank ({mode}): passed, and must fail, and ")
    evidence = {
        "read-file": "the secret of the file came back",
        "write-file": "changed: files/link, files/moved, files/new, files/target",
        "change-file": "changed: files/target",
        "network": "a listener was reached (tcp); a listener was reached (udp)",
        "local-socket": "a listener was reached (socket)",
        "abstract-socket": "a listener was reached (abstract)",
        "processes": "1 of its processes are left",
        "kill-parent": "it brought down the zygote",
        "state": "changed: /dev/shm/…, /tmp/…, /var/tmp/…, files/…",
        "memory": "MB of memory",
    }
    for name, what in evidence.items():
        assert what in found[name], name


@needs_landlock
@pytest.mark.parametrize(
    ("left_out", "through"),
    [
        ("landlock.restrict", {"read-file"}),
        ("seccomp.restrict", {"network", "local-socket", "processes"}),
        ("rlimits.limit_resources", {"memory", "limits"}),
    ],
)
def test_one_step_left_out_of_the_lockdown_is_noticed(tmp_path: Path, left_out: str, through: set[str]) -> None:
    found = set(not_held(self_test(lambda: weak_sandbox(tmp_path, left_out), CASES)))
    assert through <= found < ATTACKS


@needs_landlock
def test_a_secret_that_an_environment_leaks_is_noticed(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "environment")
    start: Any = subprocess.Popen

    def leak(*arguments: Any, env: dict[str, str], **options: Any) -> Any:
        return start(*arguments, env=env | os.environ, **options)

    monkeypatch.setattr(subprocess, "Popen", leak)
    found = not_held(self_test(open_named("landlock"), CASES))
    assert found == {"environment": "passed, and must fail; the secret of the environment came back"}


# ------------------------------------------------------------------------------------------------------ a fooled judge


@each_sandbox
def test_a_judge_that_takes_everything_for_equal_is_noticed(sandbox_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_mode, "same", lambda *_: True)
    assert not_held(self_test(open_named(sandbox_name), CASES)) == {"type": "passed, and must fail"}


@each_sandbox
def test_a_judge_that_tells_exceptions_by_name_is_noticed(
    sandbox_name: str, few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "nearly", "forged-exception")

    def by_name(reply: Reply) -> Described | None:
        found = exception_of(reply)
        return found and replace(found, ancestry=[found.name])

    monkeypatch.setattr(value_mode, "exception_of", by_name)
    assert not_held(self_test(open_named(sandbox_name), CASES)) == {"forged-exception": "passed, and must fail"}


@each_sandbox
def test_a_nonce_that_can_be_guessed_is_noticed(
    sandbox_name: str, few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "in-advance", "constant")
    monkeypatch.setattr(secrets, "token_hex", lambda length: "0" * 2 * length)
    assert not_held(self_test(open_named(sandbox_name), CASES)) == {"in-advance": "passed, and must fail"}


@each_sandbox
def test_a_judge_that_believes_in_tests_that_were_not_run_is_noticed(
    sandbox_name: str, few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "constant", "nameless", "exit-while-loading")
    monkeypatch.setattr(pytest_mode, "_reason", lambda findings, _known, _passed: findings.reason)
    found = not_held(self_test(open_named(sandbox_name), ["pytest"]))
    assert set(found) == {"constant", "exit-while-loading"}


@needs_landlock
def test_an_honest_answer_is_given_a_second_chance_on_a_busy_machine(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "sleeper")
    late = Judgement(status="failed", reason="it took too long", score=0, usage=Usage(ran_out_of_clock=True))
    said = iter([late, Judgement.binary(""), late, *[Judgement.binary("never asked for")] * 2])
    monkeypatch.setattr(run, "judge", lambda *_: next(said))
    assert self_test(open_named("landlock"), CASES).holds
    assert next(said).reason == "never asked for"
    monkeypatch.setattr(run, "judge", lambda *_: late)
    found = not_held(self_test(open_named("landlock"), CASES))
    assert found == {"plain": "failed, and must pass: it took too long"}


@pytest.mark.parametrize(("status", "wronged"), [("passed", WRONG), ("failed", HONEST)])
@needs_landlock
def test_a_judge_that_always_says_the_same_is_noticed(
    monkeypatch: pytest.MonkeyPatch, status: str, wronged: set[str]
) -> None:
    judgement = Judgement.binary("" if status == "passed" else "so it is")
    monkeypatch.setattr(run, "judge", lambda *_: judgement)
    report = self_test(open_named("landlock"), CASES)
    assert set(not_held(report)) == wronged
    assert ("so it is" in report.verdict) == (status == "failed")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output": "é" * (LIMITS.output_kb << 12)}, "512 KB of what it printed were kept"),
        ({"usage": {"memory_mb": LIMITS.memory_mb + 1}}, f"it took {LIMITS.memory_mb + 1} MB of memory"),
    ],
)
@needs_landlock
def test_use_above_a_limit_is_noticed(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str
) -> None:
    few("chatty")
    judgement = Judgement.model_validate({"status": "passed", "score": 1, **changes})
    monkeypatch.setattr(run, "judge", lambda *_: judgement)
    assert not_held(self_test(open_named("landlock"), CASES)) == {"chatty": reason}


@needs_landlock
def test_an_answer_that_is_not_stopped_in_time_is_noticed(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("sleeper")
    short = LIMITS.model_copy(update={"total_s": 0.05, "zygote_s": 0.5})

    def slow(*_: Any) -> Judgement:
        time.sleep(0.6)
        return Judgement.binary("too late")

    monkeypatch.setattr(run, "judge", slow)
    assert not_held(self_test(lambda: open_sandbox("landlock", short), CASES)) == {"sleeper": "it took 0.6 s"}


# ------------------------------------------------------------------------------------------------------------ the parts


def test_the_answers_have_names_of_their_own_and_say_what_they_try() -> None:
    every = bundled().answers
    assert len({answer.name for answer in every}) == len(every) >= 30
    for answer in every:
        assert re.fullmatch(r"[a-z-]+", answer.name)
        assert answer.tries
        assert not answer.tries.endswith(".")


@pytest.mark.parametrize("answer", bundled().answers, ids=lambda answer: answer.name)
def test_an_answers_code_is_python_and_fully_aimed(answer: BundledAnswer) -> None:
    with planted() as found:
        code = bundled().aimed(answer, found.addresses)
    assert code is not None
    assert "$" not in code
    if answer.name == "broken":
        with pytest.raises(SyntaxError):
            compile(code, answer.name, "exec")
    else:
        compile(code, answer.name, "exec")


def test_an_attack_for_expected_values_finds_them_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the sandbox there are none; here there are, as a test module would hold them."""
    monkeypatch.setattr("glob.glob", lambda _pattern: [])
    [answer] = [answer for answer in bundled().answers if answer.name == NOTHING_TO_FIND]
    code = bundled().aimed(answer, {})
    assert code is not None
    expected = [(4, 10), (100, 5050)]
    scope: dict[str, Callable[[], list[object]]] = {}
    exec(code.partition("\ntry:\n    loot")[0], scope)
    assert expected in scope["attack"]()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"must": "fail"}, "either code or an attack"),
        ({"must": "fail", "code": "", "attack": ""}, "either code or an attack"),
        ({"must": "pass", "attack": "return 1"}, "an attack must fail"),
        ({"must": "fail", "code": "", "runz": 2}, "runz"),
    ],
)
def test_a_malformed_answer_is_refused(content: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BundledAnswer.model_validate({"name": "x", "tries": "x", **content})


@needs_landlock
def test_the_known_ids_of_the_tests_are_those_that_a_preparation_finds() -> None:
    plain = next(answer.code for answer in bundled().answers if answer.name == "plain")
    problem = bundled().problem_for("pytest").model_copy(update={"reference": plain, "test_ids": ()})
    with open_sandbox("landlock", LIMITS) as sandbox:
        [prepared] = prepare([problem], Bench(sandbox))
    assert prepared.test_ids == bundled().test_ids


def test_canaries_see_what_touches_them_and_are_mended() -> None:
    with planted() as found:
        files = Path(found.addresses["directory"]) / "files"
        secret = (files / "secret").read_text()
        touches: list[tuple[Callable[[], object], str]] = [
            (lambda: (files / "target").write_text("was here"), "changed: files/target"),
            (lambda: (files / "target").chmod(0o600), "changed: files/target"),
            (lambda: (files / "new").touch(), "changed: files/new"),
            (lambda: Path("/tmp", found.addresses["token"]).touch(), "changed: /tmp/…"),
            (lambda: shutil.rmtree(files), "changed: files, files/secret, files/target"),
            (lambda: socket.create_connection(("127.0.0.1", int(found.addresses["tcp"]))).close(), "reached (tcp)"),
        ]
        assert found.damage("nothing") == []
        for touch, seen in touches:
            touch()
            [what] = found.damage("nothing")
            assert seen in what
            assert found.damage("nothing") == []
        assert found.damage(f"x{secret}y") == ["the secret of the file came back"]
        assert found.damage(os.environ[VARIABLE]) == ["the secret of the environment came back"]
    assert not files.exists()


@needs_landlock
def test_another_platform_is_tried_as_far_as_it_goes(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few("plain", "proc", "abstract-socket", "constant")
    for module in (answers, canaries):
        monkeypatch.setattr(module, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(machinery, "PROC", tmp_path)
    report = self_test(open_named("landlock"), CASES)
    assert [tried.name for tried in report.tried] == ["plain", "constant"]
    assert report.holds
    assert sorted(report.not_looked_at) == [
        "abstract-socket: it is for linux",
        "proc: it is for linux",
        "processes that are left: there is no /proc",
    ]


@needs_landlock
def test_a_listener_that_cannot_be_opened_is_said_and_not_tried(
    few: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few("plain", "network")

    def refuse(_self: socket.socket, _address: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    report = self_test(open_named("landlock"), CASES)
    assert [tried.name for tried in report.tried] == ["plain"]
    assert "a listener (tcp): Cannot assign requested address" in report.not_looked_at
