"""What of the kind `docker` needs no engine: why it is missing, what the engine is asked for, what it never does."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rlm_cli import doctor
from rlm_core.config import VerifySection
from rlm_core.errors import SandboxUnavailable
from rlm_core.sandbox import AUTOMATIC, Container, available, open_sandbox
from rlm_core.sandbox.backends import base, docker
from rlm_core.sandbox.interpreter import INSIDE, find_interpreter
from rlm_core.sandbox.zygote import PACKAGES, Role

from .conftest import SHORT, needs_landlock

CONTAINER = Container(image="some/image:1.0", memory_mb=700, cpus=1.5, pids=99, host="unix:///engine.sock")
GOOD = {"image": "echo sha256:1", "info": "echo true true true true"}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a `docker` in the way that answers its commands with lines of shell, and notes how it was called."""

    def put(**answers: str) -> Path:
        cases = "".join(f"*' {command} '*) {answer};;\n" for command, answer in (answers | GOOD | answers).items())
        script = f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\ncase " $* " in\n{cases}esac\n'
        (tmp_path / "docker").write_text(script)
        (tmp_path / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "calls"

    return put


def refusal(container: Container = CONTAINER) -> str:
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox("docker", SHORT, container=container)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------------- availability


@needs_landlock
def test_without_a_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "docker is not installed: apt install docker.io" in refusal()


@needs_landlock
@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"image": "echo 'Error: No such image: x' >&2; exit 1"}, "docker pull some/image:1.0"),
        (
            {"image": "echo 'Cannot connect to the Docker daemon' >&2; exit 1"},
            "Cannot connect to the Docker daemon; start",
        ),
        ({"image": "printf 'permission denied\\nreally' >&2; exit 1"}, "permission denied really; start it"),
        ({"info": "echo true false true false"}, "the engine cannot limit swap, processes"),
        ({"info": "echo '<no value>'"}, "does not say what it can limit: <no value>"),
        ({"info": "echo oh no >&2; exit 1"}, "does not say what it can limit: oh no"),
        ({"run": "echo 'docker: no such runtime' >&2; exit 125"}, "did not start: docker: no such runtime"),
        ({"run": "printf 'docker: refused.\\n\\nRun docker run --help' >&2; exit 125"}, "did not start: "),
        ({"run": "exit 0"}, "the sandbox's zygote did not start"),
    ],
)
def test_what_the_engine_lacks_is_said_in_one_line(client: Any, answers: dict[str, str], why: str) -> None:
    client(**answers)
    assert why in refusal()


@needs_landlock
def test_an_engine_that_does_not_answer_is_not_waited_for(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "_CLIENT_S", 0.2)
    client(image="exec sleep 30")
    assert "the engine does not answer: no answer in 0.2 s" in refusal()


@needs_landlock
def test_files_that_only_their_owner_may_read_are_noticed(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client()
    (tmp_path / "wire.py").touch(mode=0o600)
    monkeypatch.setattr(docker, "INSIDE", tmp_path)
    tmp_path.chmod(0o755)
    assert f"chmod -R a+rX {tmp_path}" in refusal()


@needs_landlock
def test_a_container_that_fails_is_ended_by_its_name(client: Any) -> None:
    calls = client(run="exit 1")
    refusal()
    lines = [line.split() for line in calls.read_text().splitlines()]
    [started] = [line for line in lines if "run" in line]
    name = started[started.index("--name") + 1]
    assert lines[-1] == ["--host", CONTAINER.host, "rm", "--force", "--volumes", name]


def test_auto_never_chooses_it(client: Any) -> None:
    calls = client()
    assert "docker" not in AUTOMATIC
    try:
        open_sandbox("auto", SHORT).close()
    except SandboxUnavailable as reason:
        assert "docker" not in str(reason)
    assert not calls.exists()


def test_it_is_listed_last_with_the_reason(client: Any) -> None:
    client(image="echo 'Error: No such image: x' >&2; exit 1")
    name, reason = available()[-1]
    assert name == "docker"
    assert reason is not None


def test_a_docker_that_is_missing_does_not_fail_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available", lambda: [(AUTOMATIC[0], "no"), ("docker", "is not installed")])
    needed = {finding.what: finding.needed for finding in doctor._sandbox_findings()}
    assert needed == {f"sandbox {AUTOMATIC[0]}": True, "sandbox docker": False}


def test_a_docker_that_works_does_not_stand_in_for_what_auto_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available", lambda: [(AUTOMATIC[0], "no"), ("docker", None)])
    assert [finding.good for finding in doctor._sandbox_findings() if finding.needed] == [False]


# ---------------------------------------------------------------------------------------------------- the command line


def command(role: Role = "code") -> list[str]:
    launch = docker.backend(CONTAINER).launch(find_interpreter(PACKAGES[role]))
    return list(launch.command)


def option(name: str, line: list[str]) -> list[str]:
    return [value for key, value in pairwise(line) if key == name]


def test_the_engine_is_asked_for_every_wall() -> None:
    line = command()
    assert line[:4] == ["docker", "--host", "unix:///engine.sock", "run"]
    assert {"--rm", "--read-only", "--no-healthcheck"} <= set(line)
    wanted = {
        "--pull": "never",
        "--network": "none",
        "--ipc": "none",
        "--cap-drop": "ALL",
        "--security-opt": "no-new-privileges",
        "--memory": "700m",
        "--memory-swap": "700m",
        "--cpus": "1.5",
        "--pids-limit": "99",
        "--entrypoint": "python3",
    }
    assert {name: option(name, line) for name in wanted} == {name: [value] for name, value in wanted.items()}
    assert {"--privileged", "--cap-add", "--volume", "--publish", "--device"}.isdisjoint(line)
    options, image = line[: line.index("some/image:1.0")], line[line.index("some/image:1.0") :]
    assert "--entrypoint" in options, "what follows the image is for Python"
    assert image[1:5] == ["-I", "-S", "-B", "-c"]


def test_every_container_has_a_name_and_a_user_of_its_own() -> None:
    lines = [command() for _ in range(5)]
    assert len({option("--name", line)[0] for line in lines}) == 5
    users = {option("--user", line)[0] for line in lines}
    assert len(users) > 1
    lowest, highest = base._SPARE
    assert all(lowest <= int(part) <= highest for user in users for part in user.split(":"))


def test_mounts_are_read_only_and_no_more_than_is_needed() -> None:
    code, tests = (option("--mount", command(role)) for role in ("code", "tests"))
    assert all(mount.endswith(",readonly") for mount in (*code, *tests))
    targets = [[part for part in mount.split(",") if part.startswith("target=")] for mount in code]
    assert targets == [["target=/rlm/inside"], ["target=/rlm/door"]]
    assert f"source={INSIDE}" in code[0]
    assert len(tests) == len(code) + len(PACKAGES["tests"])


def test_a_path_may_have_commas() -> None:
    assert docker._mount(Path("/a,b"), "/c") == 'type=bind,"source=/a,b",target=/c,readonly'


# -------------------------------------------------------------------------------------------------- inside the image


def test_what_starts_the_zygote_drops_the_environment() -> None:
    show = "import os, sys; print(*sorted(set(os.environ) - {'LC_CTYPE'}), sys.flags.no_site)"  # that is Python's own
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", docker._START, json.dumps({"A": "1"}), "-S", "-c", show],
        env={"PYTHONPATH": "/x", "SECRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["A", "1"], done.stderr


def test_what_starts_the_zygote_refuses_an_old_python() -> None:
    old = f"import sys\nsys.version_info = (3, 9, 2)\nexec({docker._START!r})"
    done = subprocess.run([sys.executable, "-c", old, "{}"], capture_output=True, text=True)
    assert done.stderr.strip() == "the image has Python 3.9, and 3.11 or newer is needed"
    assert done.returncode == 1


# ------------------------------------------------------------------------------------------------------------ settings


def test_the_settings_come_from_the_section_verify() -> None:
    section = VerifySection.parse({"sandbox": "docker", "container": {"image": "mine:2", "memory_mb": 900}})
    assert section.container == Container(image="mine:2", memory_mb=900)


@pytest.mark.parametrize("wrong", [{"image": "--privileged"}, {"image": ""}, {"memory_mb": 1}, {"pids": 0}, {"cpu": 1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Container.model_validate(wrong)


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    table = (Path(__file__).parents[3] / "docs" / "sandbox.md").read_text()
    for name, field in Container.model_fields.items():
        assert f"| `{name}` | {'null' if field.default is None else field.default} |" in table, name
