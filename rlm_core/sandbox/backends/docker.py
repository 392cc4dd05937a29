"""A long-lived container without network: the Python, libraries and packages of an image that a person has chosen.

The zygote in it locks its children down as everywhere else; the container is one more wall around them, and gives them
other packages than this machine has. A Docker engine on the same kernel is needed, because descriptors are handed over.
"""

import csv
import io
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rlm_core.errors import one_line
from rlm_core.sandbox.backends.base import PACKAGES, Backend, Launch, any_spare_user, kernel_missing
from rlm_core.sandbox.container import Container
from rlm_core.sandbox.door import Door
from rlm_core.sandbox.interpreter import INSIDE, SYSTEM, Interpreter

_CLIENT_S = 20.0
"""Seconds on the clock that the engine may take for an answer, and for ending a container."""
_LONGEST_LINE = 300
_DOOR = "/rlm/door"

_CONTROLS = {"MemoryLimit": "memory", "SwapLimit": "swap", "CPUCfsQuota": "CPU time", "PidsLimit": "processes"}
"""What an engine says that it can limit. It would start a container without a limit that it cannot hold."""

_START = """
import json, os, sys
if sys.version_info < (3, 11):
    sys.exit("the image has Python %d.%d, and 3.11 or newer is needed" % sys.version_info[:2])
os.execve(sys.executable, [sys.executable] + sys.argv[2:], json.loads(sys.argv[1]))
"""
"""Run by the `python3` that the image's own PATH leads to: goes on without the image's environment."""


def backend(container: Container) -> Backend:
    """The kind with these settings."""
    return Backend(
        name="docker",
        title="docker+landlock+seccomp",
        missing=partial(_missing, container),
        launch=partial(_launch, container),
    )


def _missing(container: Container) -> str | None:
    return (
        kernel_missing(landlock_abi=1)
        or _client_missing()
        or _image_missing(container)
        or _control_missing(container)
        or _unreadable()
    )


def _client_missing() -> str | None:
    if shutil.which("docker"):
        return None
    return "docker is not installed: apt install docker.io (Debian, Ubuntu), dnf install moby-engine (Fedora)"


def _image_missing(container: Container) -> str | None:
    asked = _ask(container, "image", "inspect", "--format", "{{.Id}}", container.image)
    if asked.returncode == 0:
        return None
    if "no such image" in asked.stderr.lower():
        return (
            f"the engine has no image {container.image}: docker pull {container.image}, "
            "or set verify.container.image to one that it has"
        )
    return (
        f"the engine does not answer: {one_line(asked.stderr, _LONGEST_LINE)}; start it (systemctl start docker), be a "
        "user that may use it, or set verify.container.host"
    )


def _control_missing(container: Container) -> str | None:
    asked = _ask(container, "info", "--format", " ".join(f"{{{{.{name}}}}}" for name in _CONTROLS))
    said = asked.stdout.split()
    if asked.returncode != 0 or len(said) != len(_CONTROLS):
        return f"the engine does not say what it can limit: {one_line(asked.stderr or asked.stdout, _LONGEST_LINE)}"
    lacking = [what for what, can in zip(_CONTROLS.values(), said, strict=True) if can != "true"]
    if not lacking:
        return None
    return f"the engine cannot limit {', '.join(lacking)}: boot Linux with version 2 of cgroups and all its controllers"


def _unreadable() -> str | None:
    """The container's user is nobody on this machine, and reads what is mounted for it as anybody would."""
    if INSIDE.stat().st_mode & 0o001 and all(path.stat().st_mode & 0o004 for path in (INSIDE, *INSIDE.glob("*.py"))):
        return None
    return f"{INSIDE} has to be readable by every user: chmod -R a+rX {INSIDE}"


def _launch(container: Container, interpreter: Interpreter) -> Launch:
    name = f"rlm-{secrets.token_hex(8)}"
    door = Door(Path(tempfile.gettempdir(), name, "door"), _DOOR, partial(_end, container, name))
    packages = {str(PACKAGES / path.name): path for path in interpreter.packages}
    command = [*_client(container), "run", "--name", name, *_walls(container)]
    # The socket alone: the directory it lies in is ours, and its mode keeps everybody else from it.
    for inside, path in ({"/rlm/inside": INSIDE, _DOOR: door.file} | packages).items():
        command += ["--mount", _mount(path, inside)]
    command += ["--workdir", "/rlm", "--entrypoint", "python3", container.image]
    return Launch(
        command=(*command, "-I", "-S", "-B", "-c", _START),
        directory=Path("/"),
        user=None,
        keep_read_access=False,
        count_threads=True,
        listable=SYSTEM,
        readable=SYSTEM,
        packages=tuple(packages),
        foreign=True,
        door=door,
    )


def _walls(container: Container) -> list[str]:
    user = any_spare_user()
    options: Mapping[str, str] = {
        "--pull": "never",
        "--network": "none",
        "--ipc": "none",  # also no /dev/shm, which anybody may write to
        "--cap-drop": "ALL",
        "--security-opt": "no-new-privileges",
        "--user": f"{user}:{user}",
        "--memory": f"{container.memory_mb}m",
        "--memory-swap": f"{container.memory_mb}m",  # memory and swap together: no swap
        "--cpus": f"{container.cpus:g}",
        "--pids-limit": str(container.pids),
        "--hostname": "rlm",
        "--log-driver": "none",
        "--stop-signal": "KILL",  # the first process of a container does not hear SIGTERM
    }
    # An image's health check would be a second program in the container.
    return ["--rm", "--read-only", "--no-healthcheck", *(part for option in options.items() for part in option)]


def _mount(source: Path, inside: str) -> str:
    """Of `--mount`, unlike of `--volume`, a source that is missing is an error, and a path may have any characters."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={inside}", "readonly"])
    return line.getvalue()


def _end(container: Container, name: str) -> None:
    """Have the engine kill a container and remove it. One whose engine is gone ends when its door is closed."""
    until = time.monotonic() + _CLIENT_S
    while "already in progress" in _ask(container, "rm", "--force", "--volumes", name).stderr:
        if time.monotonic() > until:
            return
        time.sleep(0.02)


def _client(container: Container) -> list[str]:
    return ["docker", *(["--host", container.host] if container.host else [])]


def _ask(container: Container, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the client; one that does not answer in time, or cannot be started, has failed and says so."""
    command = [*_client(container), *arguments]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CLIENT_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer in {_CLIENT_S:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", os.strerror(error.errno or 0))
