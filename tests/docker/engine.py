"""A Docker engine of the tests' own, with an image made here: nothing is taken from a registry."""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_cli.services import end_process

IMAGE = "rlm-test:latest"
CACHE = "RLM_TEST_CACHE"
"""Environment variable that names a directory where the image's files are kept for the next run."""

_TOOLS = {"dockerd": "docker.io", "docker": "docker.io", "debootstrap": "debootstrap", "tar": "tar"}
_START_S, _END_S = 30.0, 20.0
_TRACES = ("/etc/docker", "/opt/containerd", "/run/docker", "/var/lib/docker-engine", "/var/lib/docker")
"""What engines make outside of the directories that they are given."""


class EngineUnavailable(Exception):
    """There can be no engine here; one line says why."""


class Engine:
    """A running engine: `dockerd`, the containerd that it starts, and a directory with all that they write."""

    def __init__(self, directory: Path, driver: str) -> None:
        directory.mkdir()
        self.host = f"unix://{directory}/socket"
        self._directory = directory
        self._driver = driver
        self._group = f"{directory.parent.name}-{driver}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            EngineUnavailable: with the last line of its log.
        """
        command = ["dockerd", "--host", self.host, "--storage-driver", self._driver]
        # No network for containers, and no rule of this machine's firewall changed.
        command += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        command += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", self._group]
        for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
            command += [f"--{option}", str(self._directory / name)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not wait_until(lambda: self._answers() or self._ended(), _START_S) or self._ended():
            lines = (self._directory / "log").read_text(errors="replace").strip().splitlines()
            raise EngineUnavailable(f"dockerd with {self._driver} does not start: {lines[-1] if lines else ''}"[:500])

    def stop(self) -> None:
        """Stop it, and what it left running, as a machine that shuts down would."""
        assert self._process is not None
        end_process(self._process, _END_S)
        for pid in self._others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not self._others(), _END_S)
        # Of a process that was killed it stays, and the next engine would wait for that one.
        (self._directory / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the process itself, as a crash would; `stop` ends what that leaves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def docker(self, *arguments: str) -> str:
        """What the client prints.

        Raises:
            subprocess.CalledProcessError: the engine refused.
        """
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def containers(self) -> list[str]:
        """Names of all containers, those that have ended included."""
        return self.docker("ps", "--all", "--format", "{{.Names}}").split()

    def clean_up(self) -> None:
        """Remove mounts and control groups that it may have left."""
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self._directory}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=True)
        for group in Path("/sys/fs/cgroup").glob(f"**/{self._group}"):
            for directory in sorted((group, *filter(Path.is_dir, group.rglob("*"))), reverse=True):
                directory.rmdir()

    def _answers(self) -> bool:
        try:
            return bool(self.docker("version", "--format", "{{.Server.Version}}").strip())
        except subprocess.CalledProcessError:
            return False

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _others(self) -> list[int]:
        """Processes, such as containerd, that were started with a path of this engine's own, which is in no other's."""
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and f"{self._directory}/exec".encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found


@contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine that has the image `IMAGE`; afterwards nothing of it is left.

    Raises:
        EngineUnavailable: it cannot be had here.
    """
    _require_tools()
    before = {trace for trace in _TRACES if Path(trace).exists()}
    with tempfile.TemporaryDirectory(prefix="rlm-docker-", dir="/tmp", ignore_cleanup_errors=True) as name:
        engine = _first_that_runs(Path(name))
        try:
            engine.docker("import", str(_root_file_system(Path(name))), IMAGE)
            yield engine
        finally:
            engine.stop()
            engine.clean_up()
            for trace in set(_TRACES) - before:
                shutil.rmtree(trace, ignore_errors=True)


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise EngineUnavailable("only root can start a Docker engine and make an image for it")
    lacking = sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None})
    if lacking:
        raise EngineUnavailable(f"not installed: apt install {' '.join(lacking)}")


def _first_that_runs(directory: Path) -> Engine:
    reasons = []
    for driver in ("overlay2", "vfs"):
        engine = Engine(directory / driver, driver)
        try:
            engine.start()
            return engine
        except EngineUnavailable as error:
            reasons.append(str(error))
            engine.stop()
            engine.clean_up()
    raise EngineUnavailable("; ".join(reasons))


def _root_file_system(directory: Path) -> Path:
    """A tar file of a small Debian with Python, from where this machine gets its own packages."""
    mirror, release = _mirror()
    kept = Path(os.environ.get(CACHE) or directory) / f"{release}-python3.tar"
    if not kept.exists():
        root, made = directory / "root", directory / "root.tar"
        command = ["debootstrap", "--variant=minbase", "--include=python3", release, str(root), mirror]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode != 0:
            raise EngineUnavailable(f"debootstrap failed: {(ended.stdout.strip().splitlines() or [''])[-1]}")
        left_out = [f"--exclude=./{path}/*" for path in ("var/cache/apt", "var/lib/apt/lists", "dev", "proc", "sys")]
        subprocess.run(["tar", *left_out, "-C", str(root), "-cf", str(made), "."], check=True)
        shutil.rmtree(root)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, kept)
    return kept


def _mirror() -> tuple[str, str]:
    """Address and release of the archive that apt is set to."""
    wanted = "$(REPO_URI)|$(CODENAME)|$(COMPONENT)"
    listed = subprocess.run(["apt-get", "indextargets", "--format", wanted], capture_output=True, text=True)
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    for line in listed.stdout.splitlines():
        address, codename, component = line.split("|")
        if codename == release and component == "main":
            return address, release
    raise EngineUnavailable("apt is set to no archive of this machine's release to make an image from")


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()
