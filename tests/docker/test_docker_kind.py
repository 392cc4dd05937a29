"""What only containers have: an engine that may fail, an image that a person chose, limits of the whole container."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlm_core.errors import InfrastructureFault, SandboxUnavailable
from rlm_core.problems import Case, Problem, Pytest
from rlm_core.sandbox import Container, Limits, Sandbox, open_sandbox
from rlm_core.verifiers import Answer, Bench, judge, prepare
from rlm_core.verifiers.cases import Value, judge_cases, run_cases
from tests.core.sandbox.conftest import PATIENT, SHORT

from .engine import IMAGE, Engine, wait_until

ROOT = Path(__file__).parents[2]
LIMITS = PATIENT
PACKAGES = "usr/local/lib/python3.11/dist-packages"
RIGHT = "import math\nsolve = math.factorial\n"


@pytest.fixture
def fresh(container: Container) -> Iterator[Sandbox]:
    """A sandbox of a test's own, to be maltreated."""
    with open_sandbox("docker", PATIENT, container=container) as sandbox:
        yield sandbox


@contextmanager
def changed_image(engine: Engine, files: dict[str, str], *changes: str) -> Iterator[str]:
    """Name of an image with more files, and other settings in the words of a Dockerfile."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    base = engine.docker("create", IMAGE, "true").strip()
    try:
        copy = ["docker", "--host", engine.host, "cp", "-", f"{base}:/"]
        subprocess.run(copy, input=data.getvalue(), check=True, capture_output=True)
        options = [part for change in changes for part in ("--change", change)]
        engine.docker("commit", *options, base, "rlm-test:changed")
    finally:
        engine.docker("rm", base)
    yield "rlm-test:changed"
    engine.docker("rmi", "rlm-test:changed")


def result_of(sandbox: Sandbox, code: str) -> object:
    [result] = run_cases(sandbox, code, "f", [[]])
    assert isinstance(result, Value), result
    return result.value


# ------------------------------------------------------------------------------------------------------------- walls


def test_the_container_has_no_network(fresh: Sandbox) -> None:
    lines = Path(f"/proc/{fresh._zygotes.code.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


def test_the_zygote_has_no_privileges_and_a_user_of_its_own(fresh: Sandbox) -> None:
    status = Path(f"/proc/{fresh._zygotes.code.pid}/status").read_text()
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name][0], 16) == 0, name
    assert fields["NoNewPrivs"] == ["1"]
    assert len({*fields["Uid"], *fields["Gid"]}) == 1
    assert int(fields["Uid"][0]) >= 61184


def test_no_directory_of_the_container_can_be_written(engine: Engine, fresh: Sandbox) -> None:
    """By the zygote's user, that is, before any child locks itself down; but for the message queues of its own."""
    script = """
import os
for directory, names, _ in os.walk("/"):
    names[:] = [name for name in names if os.path.join(directory, name) != "/proc"]
    if os.access(directory, os.W_OK):
        print(directory)
"""
    assert fresh._zygotes.code.pid
    assert engine.docker("exec", engine.containers()[0], "python3", "-c", script).split() in ([], ["/dev/mqueue"])


def test_the_engine_was_given_every_limit_and_wall(engine: Engine, container: Container) -> None:
    asked = container.model_copy(update={"memory_mb": 300, "cpus": 0.5, "pids": 40})
    with open_sandbox("docker", PATIENT, container=asked):
        [name] = engine.containers()
        [inspected] = json.loads(engine.docker("inspect", name))
    host = inspected["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (300 << 20, 300 << 20)
    assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 40)
    assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"]) == ("none", "none", True)


def test_memory_of_the_whole_container_is_limited(container: Container, factorial: Problem) -> None:
    small = container.model_copy(update={"memory_mb": 128})
    with open_sandbox("docker", Limits(memory_mb=2048, case_s=20), container=small) as sandbox:
        zygote = sandbox._zygotes.code.pid
        greedy = "def solve(n):\n    held = [bytes([1]) * (1 << 20) for _ in range(512)]\n    return len(held)"
        judgement = judge_cases(sandbox, greedy, factorial)
        assert {case.outcome for case in judgement.cases} <= {"crashed", "not_run"}
        assert judge_cases(sandbox, RIGHT, factorial).status == "passed"
        assert sandbox._zygotes.code.pid == zygote, "the kernel ended the wrong process"


def test_processes_and_threads_of_the_whole_container_are_limited(container: Container) -> None:
    few = container.model_copy(update={"pids": 12})
    code = """
import threading
def f():
    stop, started = threading.Event(), 0
    try:
        while started < 100:
            threading.Thread(target=stop.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        pass
    stop.set()
    return started
"""
    with open_sandbox("docker", PATIENT, container=few) as sandbox:
        assert result_of(sandbox, code) == 10  # beside the zygote and the child's first thread


# ------------------------------------------------------------------------------------------------------------ the image


def test_an_answer_can_use_the_packages_of_the_image(engine: Engine, container: Container) -> None:
    files = {f"{PACKAGES}/greeting.py": "def greet():\n    return 'hello'\n"}
    with (
        changed_image(engine, files) as image,
        open_sandbox("docker", PATIENT, container=container.model_copy(update={"image": image})) as sandbox,
    ):
        assert result_of(sandbox, "from greeting import greet as f") == "hello"
    with open_sandbox("docker", PATIENT, container=container) as sandbox:
        [result] = run_cases(sandbox, "from greeting import greet as f", "f", [[]])
        assert not isinstance(result, Value)


def test_settings_of_the_image_change_nothing(engine: Engine, container: Container) -> None:
    """Its environment, its command and its health check: another program in it, or other modules for the zygote."""
    files = {"opt/evil/gc.py": "raise SystemExit('evil')\n", "opt/evil/sitecustomize.py": "raise SystemExit('evil')\n"}
    changes = [
        "ENV PYTHONPATH=/opt/evil PYTHONSTARTUP=/opt/evil/gc.py TOKEN=canary LD_PRELOAD=/nowhere.so",
        'ENTRYPOINT ["/bin/false"]',
        'CMD ["--evil"]',
        "USER root",
        "WORKDIR /opt/evil",
        "VOLUME /data",
    ]
    with (
        changed_image(engine, files, *changes) as image,
        open_sandbox("docker", PATIENT, container=container.model_copy(update={"image": image})) as sandbox,
    ):
        names = result_of(sandbox, "import os\ndef f(): return sorted(os.environ)")
    assert names == ["HOME", "LANG", "MALLOC_ARENA_MAX", "PATH", "PYTHONHASHSEED", "TZ"]


def test_an_image_without_a_usable_python_is_refused_in_one_line(engine: Engine, container: Container) -> None:
    for text, why in {
        "#!/bin/sh\necho 'the image has Python 3.9, and 3.11 or newer is needed' >&2\nexit 1\n": "3.11 or newer",
        "": "did not start",
    }.items():
        with (
            changed_image(engine, {"usr/local/bin/python3": text}) as image,
            pytest.raises(SandboxUnavailable, match=why) as caught,
        ):
            open_sandbox("docker", PATIENT, container=container.model_copy(update={"image": image}))
        assert "\n" not in str(caught.value)


# -------------------------------------------------------------------------------------------------------- fail closed


def test_an_unknown_image_is_neither_fetched_nor_replaced(container: Container) -> None:
    unknown = container.model_copy(update={"image": "rlm-test:unknown"})
    with pytest.raises(SandboxUnavailable, match="docker pull rlm-test:unknown") as caught:
        open_sandbox("docker", PATIENT, container=unknown)
    assert "\n" not in str(caught.value)


def test_an_engine_that_is_not_there_is_no_reason_for_less(container: Container) -> None:
    nowhere = container.model_copy(update={"host": "unix:///nowhere/docker.sock"})
    with pytest.raises(SandboxUnavailable, match=r"Cannot connect.*systemctl start docker") as caught:
        open_sandbox("docker", PATIENT, container=nowhere)
    assert "\n" not in str(caught.value)


def test_a_container_that_does_not_start_in_time_is_removed(engine: Engine, container: Container) -> None:
    slow = "#!/bin/sh\nsleep 60\n"
    with changed_image(engine, {"usr/local/bin/python3": slow}) as image:
        started = time.monotonic()
        with pytest.raises(SandboxUnavailable, match=r"did not come in time.*start_s"):
            open_sandbox("docker", Limits(start_s=1.5), container=container.model_copy(update={"image": image}))
        assert time.monotonic() - started < 10
        assert engine.containers() == []


# ---------------------------------------------------------------------------------------------------------- lifecycle


def test_file_and_directory_of_the_door_are_gone_at_once(fresh: Sandbox) -> None:
    assert fresh._zygotes.code.pid
    assert list(Path(tempfile.gettempdir()).glob("rlm-" + "[0-9a-f]" * 16)) == []


def test_closing_ends_a_container_that_hangs(engine: Engine, container: Container) -> None:
    sandbox = open_sandbox("docker", PATIENT, container=container)
    os.kill(sandbox._zygotes.code.pid, signal.SIGSTOP)
    assert len(engine.containers()) == 1
    sandbox.close()
    assert engine.containers() == []


def test_a_program_that_ends_without_closing_leaves_nothing(engine: Engine, container: Container) -> None:
    script = (
        "import sys\nfrom rlm_core.sandbox import Container, open_sandbox\n"
        "sandbox = open_sandbox('docker', container=Container.model_validate_json(sys.argv[1]))\n"
    )
    command = [sys.executable, "-W", "error", "-c", script, container.model_dump_json()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert engine.containers() == []


def test_a_container_that_somebody_removes_is_replaced(engine: Engine, fresh: Sandbox, factorial: Problem) -> None:
    [first] = engine.containers()
    engine.docker("rm", "--force", first)
    assert judge_cases(fresh, RIGHT, factorial).status == "passed"
    assert first not in engine.containers()


def test_an_engine_that_is_stopped_is_a_fault_of_the_machinery(
    engine: Engine, container: Container, factorial: Problem
) -> None:
    with open_sandbox("docker", PATIENT, container=container) as sandbox:
        engine.stop()
        try:
            with pytest.raises(InfrastructureFault, match=r"docker\+landlock\+seccomp: .*Cannot connect"):
                judge_cases(sandbox, RIGHT, factorial)
        finally:
            engine.start()
        assert judge_cases(sandbox, RIGHT, factorial).status == "passed", "it does not come back with the engine"


def test_an_engine_that_is_killed_leaves_no_zygote(engine: Engine, container: Container, factorial: Problem) -> None:
    with open_sandbox("docker", PATIENT, container=container) as sandbox:
        zygote = sandbox._zygotes.code.pid
        engine.kill()
        assert judge_cases(sandbox, RIGHT, factorial).status == "passed", "the container has outlived its engine"
    try:
        assert wait_until(lambda: not Path(f"/proc/{zygote}").exists(), 5)
    finally:
        engine.stop()
        engine.start()


# --------------------------------------------------------------------------------------------------- the whole project


def test_pytest_mode_works_with_the_packages_of_this_machine(fresh: Sandbox) -> None:
    problem = Problem(
        prompt="?",
        entry_point="double",
        reference="def double(n):\n    return 2 * n\n",
        verifier=Pytest(tests="from main import double\ndef test_it():\n    assert double(2) == 4\n"),
    )
    bench = Bench(fresh, frozenset())
    [problem] = prepare([problem], bench)
    for code, status in {"def double(n): return n + n": "passed", "def double(n): return 4 * n": "failed"}.items():
        assert judge(Answer(code, code), problem, bench).status == status


@pytest.fixture
def rlm(container: Container, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `rlm verify` in this container, in a directory of the test's own."""
    (tmp_path / "config.yaml").write_text(
        f"verify:\n  container:\n    image: {container.image}\n    host: {container.host}\n"
    )
    start = [sys.executable, "-c", "from rlm_cli.main import main; main()", "verify"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*start, *arguments, "--sandbox", "docker", "--config", "config.yaml", "--json"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(("answer", "code"), [("def f(n): return n * 2\n", 0), ("def f(n): return 1\n", 1)])
def test_rlm_verify_judges_in_a_container(
    rlm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, answer: str, code: int
) -> None:
    problem = Problem(prompt="?", entry_point="f", cases=(Case(input=[1], expected=2), Case(input=[4], expected=8)))
    (tmp_path / "problem.json").write_text(problem.model_dump_json())
    (tmp_path / "answer.py").write_text(answer)
    done = rlm("problem.json", "answer.py")
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout)["sandbox"] == "docker+landlock+seccomp"


def test_the_self_test_holds_in_a_container(rlm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = rlm("--self-test")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["sandbox"], report["holds"]) == ("docker+landlock+seccomp", True)
    assert {tried["mode"] for tried in report["tried"]} == {"cases", "pytest"}


def test_limits_that_only_children_have_hold_too(container: Container, factorial: Problem) -> None:
    with open_sandbox("docker", SHORT, container=container) as sandbox:
        judgement = judge_cases(sandbox, "held = bytearray(1 << 30)\n" + RIGHT, factorial)
    assert "MemoryError" in judgement.reason
