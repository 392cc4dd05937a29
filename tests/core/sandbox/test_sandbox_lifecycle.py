"""A sandbox starts, serves many jobs, survives the death of its parts, and leaves nothing behind."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rlm_core.errors import InfrastructureFault, SandboxUnavailable
from rlm_core.problems import Case, Problem
from rlm_core.sandbox import Container, Limits, Sandbox, available, backends, open_sandbox
from rlm_core.sandbox.backends import BACKENDS, Backend
from rlm_core.sandbox.inside import landlock
from rlm_core.sandbox.interpreter import INSIDE, Interpreter, find_interpreter
from rlm_core.verifiers.cases import judge_cases

from .conftest import (
    PATIENT,
    REASONS,
    SHORT,
    each_sandbox,
    needs_landlock,
    needs_linux,
    processes_of_session,
    wait_until,
)

RIGHT = "import math\nsolve = math.factorial\n"
WRONG = "def solve(n): return 0\n"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def fresh(open_kind: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    """A sandbox of a test's own, to be maltreated."""
    with open_kind(PATIENT.model_copy(update={"zygote_s": 0.5})) as sandbox:
        yield sandbox


def zygote_of(sandbox: Sandbox) -> int:
    return sandbox._zygotes.code.pid


def open_descriptors() -> set[str]:
    if sys.platform != "linux":
        return {path.name for path in Path("/dev/fd").iterdir()}
    return {f"{link.name} {link.readlink()}" for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


# ---------------------------------------------------------------------------------------------------------- clean up


@each_sandbox
def test_nothing_is_left_of_200_jobs(open_kind: Callable[..., Sandbox], factorial: Problem) -> None:
    before = open_descriptors()
    with open_kind(PATIENT) as sandbox:
        zygote = zygote_of(sandbox)
        judge_cases(sandbox, RIGHT, factorial)
        during, processes = open_descriptors(), processes_of_session(zygote)
        for index in range(200):
            judgement = judge_cases(sandbox, (RIGHT, WRONG, "import os\nos._exit(0)")[index % 3], factorial)
            assert (judgement.status == "passed") == (index % 3 == 0)
        assert open_descriptors() == during
        assert processes_of_session(zygote) == processes
        assert zygote_of(sandbox) == zygote
    assert open_descriptors() == before
    assert wait_until(lambda: not processes_of_session(zygote))


@each_sandbox
def test_closing_twice_is_closing_once(open_kind: Callable[..., Sandbox]) -> None:
    sandbox = open_kind(PATIENT)
    zygote = zygote_of(sandbox)
    sandbox.close()
    sandbox.close()
    assert wait_until(lambda: not processes_of_session(zygote))


@each_sandbox
def test_a_forgotten_sandbox_is_closed(open_kind: Callable[..., Sandbox]) -> None:
    before = open_descriptors()
    sandbox = open_kind(PATIENT)
    zygote = zygote_of(sandbox)
    del sandbox
    assert wait_until(lambda: not processes_of_session(zygote))
    assert open_descriptors() == before


@each_sandbox
def test_an_interrupted_job_leaves_a_usable_sandbox(fresh: Sandbox, factorial: Problem) -> None:
    def interrupted(_zygote: object) -> None:
        fresh._zygotes.code.fork()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fresh.run(interrupted)
    assert judge_cases(fresh, RIGHT, factorial).status == "passed"


# ------------------------------------------------------------------------------------------------- death of the parent

OWNER = """
import os, sys, threading, time
from rlm_core.problems import Case, Problem
from rlm_core.sandbox import Container, Limits, open_sandbox
from rlm_core.verifiers.cases import judge_cases
opened = []
container = Container.model_validate_json(sys.argv[3])
limits = Limits(case_s=60)
thread = threading.Thread(target=lambda: opened.append(open_sandbox(sys.argv[1], limits, container=container)))
thread.start(); thread.join()
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(60)
print(opened[0]._zygotes.code.pid, flush=True)
problem = Problem(prompt="?", entry_point="solve", cases=(Case(input=[], expected=0),))
judge_cases(opened[0], "def solve():\\n    while True: pass", problem)
"""


@each_sandbox
@pytest.mark.parametrize("inheritor", ["none", "fork"])
def test_nothing_is_left_when_the_parent_is_killed(
    sandbox_name: str, container: Container | None, inheritor: str
) -> None:
    """Also when a fork of the parent lives on and holds every descriptor that the parent had."""
    settings = (container or Container()).model_dump_json()
    command = [sys.executable, "-c", OWNER, sandbox_name, inheritor, settings]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        try:
            zygote = int(owner.stdout.readline())
            own_processes = {"bubblewrap": 3}.get(sandbox_name, 1)
            assert wait_until(lambda: len(processes_of_session(zygote)) > own_processes), "no child is running"
            owner.kill()
            assert wait_until(lambda: not processes_of_session(zygote))
            assert (inheritor == "fork") == bool(processes_of_session(owner.pid) - {owner.pid})
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


@each_sandbox
def test_the_thread_that_opened_it_may_end(open_kind: Callable[..., Sandbox], factorial: Problem) -> None:
    with ThreadPoolExecutor(1) as pool:
        sandbox = pool.submit(open_kind, PATIENT).result()
    zygote = zygote_of(sandbox)
    time.sleep(0.1)
    assert judge_cases(sandbox, RIGHT, factorial).status == "passed"
    assert zygote_of(sandbox) == zygote
    sandbox.close()


# ------------------------------------------------------------------------------------------------------------ threads


@each_sandbox
def test_two_sandboxes_in_two_threads_do_not_meet(open_kind: Callable[..., Sandbox], factorial: Problem) -> None:
    """Neither sees the other's answers, and a descriptor that one inherited would keep the other's processes alive."""

    def work(code: str, expected: str) -> list[int]:
        zygotes = []
        for _ in range(2):
            with open_kind(PATIENT) as sandbox:
                zygotes.append(zygote_of(sandbox))
                for _ in range(8):
                    assert judge_cases(sandbox, code, factorial).status == expected
            assert wait_until(lambda: not processes_of_session(zygotes[-1]))
        return zygotes

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, RIGHT, "passed"), pool.submit(work, WRONG, "failed")]:
            future.result()


@each_sandbox
def test_threads_that_share_a_sandbox_take_turns(fresh: Sandbox, factorial: Problem) -> None:
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda code: judge_cases(fresh, code, factorial).status, [RIGHT, WRONG] * 10))
    assert verdicts == ["passed", "failed"] * 10


# ---------------------------------------------------------------------------------------------- what it starts out with


@each_sandbox
def test_nothing_of_the_environment_reaches_the_code(
    open_kind: Callable[..., Sandbox], factorial: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI", "TOKEN_OF_SERVERS"):
        monkeypatch.setenv(name, "secret")
    known = {"HOME", "LANG", "MALLOC_ARENA_MAX", "PATH", "PYTHONHASHSEED", "TZ"}
    known |= {"PWD", "LC_CTYPE", "OBJC_DISABLE_INITIALIZE_FORK_SAFETY"}  # of bubblewrap, Python and macOS
    tells = f"import os\ndef solve(n): return sorted(set(os.environ) - {known})\n"
    asked = factorial.model_copy(update={"cases": (Case(input=[0], expected=[]),)})
    with open_kind(PATIENT) as sandbox:
        assert judge_cases(sandbox, tells, asked).status == "passed"


# ------------------------------------------------------------------------------------------------ faults of the zygote


@each_sandbox
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_zygote_that_died_or_hangs_is_replaced(fresh: Sandbox, factorial: Problem, blow: signal.Signals) -> None:
    first = zygote_of(fresh)
    os.killpg(first, blow)
    assert judge_cases(fresh, RIGHT, factorial).status == "passed"
    assert zygote_of(fresh) != first
    assert wait_until(lambda: not processes_of_session(first))


@each_sandbox
def test_a_job_whose_zygote_dies_under_it_is_run_again_which_is_said_with_its_cause(
    fresh: Sandbox, factorial: Problem, caplog: pytest.LogCaptureFixture
) -> None:
    slow = "import math, time\ndef solve(n):\n    time.sleep(0.1)\n    return math.factorial(n)\n"
    first = zygote_of(fresh)
    threading.Timer(0.15, os.killpg, (first, signal.SIGKILL)).start()
    assert judge_cases(fresh, slow, factorial).status == "passed"
    assert zygote_of(fresh) != first
    [said] = caplog.messages
    assert said.startswith(f"{fresh.name}: started anew, and what ran in it is run again: the sandbox's zygote ")


@needs_landlock
def test_children_die_with_their_zygote() -> None:
    with open_sandbox("landlock", SHORT) as sandbox:
        zygote = sandbox._zygotes.code
        zygote.fork()
        assert len(processes_of_session(zygote.pid)) == 2
        os.kill(zygote.pid, signal.SIGKILL)  # it alone, not its group
        assert wait_until(lambda: not processes_of_session(zygote.pid))


FAULTS = {
    "garbage": "_count += 1; fields = b'\\0\\0\\0\\2\\xff{' if _count > 4 else fields",
    "no field": "_count += 1; fields = wire.frame({}) if _count > 4 else fields",
    "exit": "_count += 1; os._exit(3) if _count > 4 else None",
    "hang": "_count += 1; time.sleep(60) if _count > 4 else None",
}


def bad_zygote(directory: Path, fault: str) -> Backend:
    """A backend whose zygote is well until the opening check is over, and then goes wrong with every fifth reply."""
    shutil.copytree(INSIDE, directory / "inside")
    main = directory / "inside" / "__main__.py"
    code = main.read_text().replace(
        "wire.send(self._control.fileno(), wire.frame(fields))",
        f"global _count; fields = wire.frame(fields); {FAULTS[fault]}; wire.send(self._control.fileno(), fields)",
    )
    main.write_text(code.replace("\ndef main()", "\n_count = 0\n\n\ndef main()"))
    landlocked = next(backend for backend in BACKENDS if backend.name == "landlock")

    def launch(interpreter: Interpreter) -> backends.Launch:
        return replace(landlocked.launch(interpreter), directory=directory)

    return Backend("bad", "bad", landlocked.missing, launch)


@needs_landlock
@pytest.mark.parametrize("fault", FAULTS)
def test_a_zygote_that_fails_twice_is_nobodys_fault(tmp_path: Path, factorial: Problem, fault: str) -> None:
    limits = SHORT.model_copy(update={"zygote_s": 0.5})
    with Sandbox(bad_zygote(tmp_path, fault), limits, hash_seed=0) as sandbox:
        assert judge_cases(sandbox, "def solve(", factorial).status == "failed"  # one fork and one end are left
        # Every attempt needs more replies than this zygote has in it.
        long = "import os\ndef solve(n): os._exit(0)\n"
        with pytest.raises(InfrastructureFault, match="zygote"):
            judge_cases(sandbox, long, factorial)


# -------------------------------------------------------------------------------------------------------- fail closed


@pytest.mark.parametrize(
    "what", ["landlock.restrict", "seccomp.restrict", "kernel.die_with_parent", "rlimits.limit_resources"]
)
@needs_landlock
def test_a_restriction_that_fails_stops_everything(tmp_path: Path, what: str) -> None:
    backend = bad_zygote(tmp_path, "hang")
    lockdown = tmp_path / "inside" / "lockdown.py"
    lockdown.write_text(lockdown.read_text().replace(f"    {what}(", "    _fail("))
    with lockdown.open("a") as file:
        file.write("\n\ndef _fail(*_arguments):\n    raise kernel.LockdownError('refused for a test')\n")
    with pytest.raises(SandboxUnavailable, match="cannot lock down: refused for a test"):
        Sandbox(backend, SHORT, hash_seed=0)


@pytest.mark.parametrize(
    ("what", "possible"),
    [("landlock.restrict", "reading a file"), ("seccomp.restrict", "opening a socket, starting a process")],
)
@needs_landlock
def test_a_restriction_that_does_nothing_is_noticed(tmp_path: Path, what: str, possible: str) -> None:
    backend = bad_zygote(tmp_path, "hang")
    lockdown = tmp_path / "inside" / "lockdown.py"
    lockdown.write_text(lockdown.read_text().replace(f"    {what}(", "    len((0,)) or ("))
    (tmp_path / "inside").chmod(0o755)
    with pytest.raises(SandboxUnavailable, match=f"inside it, {possible}.* is possible"):
        Sandbox(backend, SHORT, hash_seed=0)


def test_the_kernels_limit_of_cpu_time_is_the_last_word(factorial: Problem) -> None:
    with open_sandbox(limits=Limits(case_s=30, cpu_s=1, respawns=0)) as sandbox:
        judgement = judge_cases(sandbox, "def solve(n):\n    while True: pass", factorial)
    assert [case.outcome for case in judgement.cases] == ["timeout", "not_run", "not_run"]


# ------------------------------------------------------------------------------------------------------- availability


def test_auto_is_the_strongest_that_works() -> None:
    usable = [name for name, reason in REASONS.items() if reason is None]
    if not usable:
        pytest.skip("no sandbox works on this machine")
    with open_sandbox(limits=SHORT) as sandbox:
        assert sandbox.name.startswith(usable[0])


@needs_linux
def test_a_sandbox_that_cannot_be_had_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap") as caught:
        open_sandbox("bubblewrap")
    assert "\n" not in str(caught.value)
    assert dict(available())["bubblewrap"] == str(caught.value)


@needs_linux
def test_a_kernel_without_landlock_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    for name in ("auto", "bubblewrap", "landlock"):
        with pytest.raises(SandboxUnavailable, match="Landlock"):
            open_sandbox(name)


@needs_linux
def test_bubblewrap_that_fails_is_not_replaced_by_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxUnavailable, match="No permissions to create a new namespace"):
        open_sandbox("bubblewrap", SHORT)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="there are: auto, bubblewrap, landlock, seatbelt, docker"):
        open_sandbox("chroot")


@pytest.mark.parametrize("path", sorted(INSIDE.glob("*.py")), ids=lambda path: path.name)
def test_what_runs_inside_needs_the_standard_library_only(path: Path) -> None:
    """And pytest, where tests are run."""
    allowed = sys.stdlib_module_names | ({"pytest", "_pytest"} if path.name == "testing.py" else set())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= allowed
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").partition(".")[0] in allowed


def test_installed_packages_are_not_exposed() -> None:
    interpreter = find_interpreter()
    packages = Path(pytest.__file__).parents[1]
    for path in (packages, Path(__file__).parents[3] / "rlm_core"):
        assert not any(path.is_relative_to(exposed) or exposed.is_relative_to(path) for exposed in interpreter.exposed)


def test_the_documentation_lists_every_limit_with_its_default() -> None:
    table = (ROOT / "docs" / "sandbox.md").read_text()
    for name, field in Limits.model_fields.items():
        assert f"| `{name}` | {field.default:,g} |".replace("1,024", "1024") in table, name


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Limits(case_s=0)
    with pytest.raises(ValueError, match="memory"):
        Limits(memory=1)  # type: ignore[call-arg]
