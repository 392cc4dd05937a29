"""What this machine has of what the pipeline needs, and what to install."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from rlm_cli.selftest import try_sandbox
from rlm_cli.terminal import plain_console
from rlm_core.cpu import blas
from rlm_core.errors import InfrastructureFault, SandboxUnavailable
from rlm_core.model.default_model import default_model_path, is_whole
from rlm_core.sandbox import AUTOMATIC, available

_SLOW_GFLOPS = 20.0
"""Below this, the default model takes hours for what should take minutes."""

_MEASURE = """
import rlm_core, time
import mlx.core as mx
mx.set_default_device(mx.cpu)
a = mx.random.normal((1024, 1024))
mx.eval(a @ a)
started, rounds = time.perf_counter(), 0
while time.perf_counter() - started < 0.5:
    mx.eval(a @ a)
    rounds += 1
print(rounds * 2 * 1024**3 / (time.perf_counter() - started) / 1e9)
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. A finding that is not `good` fails the examination when it is `needed`."""

    what: str
    found: str
    good: bool
    needed: bool = True


def examine_machine() -> int:
    """Print every finding; 1 when something that is needed is missing, else 0."""
    console = plain_console()
    failed = False
    for finding in _findings():
        failed = failed or (finding.needed and not finding.good)
        word, colour = ("ok", "green") if finding.good else ("missing", "red") if finding.needed else ("note", "yellow")
        console.print(Text.assemble((f"{word:>8}", colour), f"  {finding.what}: {finding.found}"), soft_wrap=True)
    return int(failed)


def _findings() -> Iterator[Finding]:
    yield Finding("Python", sys.version.split()[0], sys.version_info >= (3, 11))
    if sys.platform.startswith("linux"):
        yield from _cpu_findings()
    yield from _sandbox_findings()
    model = default_model_path()
    whole = is_whole(model)
    state = "fetched and whole" if whole else "not fetched yet; the first run does it"
    yield Finding("default model", f"{model} {state}", whole, needed=False)


def _cpu_findings() -> Iterator[Finding]:
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    yield Finding(
        "C++ compiler (MLX compiles kernels with it)",
        compiler or "none; install g++ (Debian: g++)",
        compiler is not None,
    )
    with_blas, without = _gflops(True), _gflops(False)
    advice = "" if with_blas >= _SLOW_GFLOPS else "; install OpenBLAS (Debian: libopenblas0-pthread)"
    found = f"{blas.load() or 'none'}; {with_blas:.0f} GFLOP/s with it, {without:.1f} without{advice}"
    yield Finding("OpenBLAS under MLX", found, with_blas >= _SLOW_GFLOPS)


def _gflops(with_openblas: bool) -> float:
    """float32 matrix products per second, 1024 × 1024, in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != blas.DISABLE}
    if not with_openblas:
        environment[blas.DISABLE] = "1"
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE], env=environment, capture_output=True, text=True, check=True
    )
    return float(measured.stdout)


def _sandbox_findings() -> Iterator[Finding]:
    sandboxes = available()  # opens each one to find out
    usable = [name for name, reason in sandboxes if reason is None and name in AUTOMATIC]
    for name, reason in sandboxes:
        needed = not usable and name in AUTOMATIC
        yield Finding(f"sandbox {name}", reason or "can be used", reason is None, needed)
    if usable:
        yield _self_test_finding()


def _self_test_finding() -> Finding:
    what = "sandbox self-test"
    try:
        report = try_sandbox("auto")
    except (InfrastructureFault, SandboxUnavailable) as fault:
        return Finding(what, f"could not be tried: {fault}", False)
    return Finding(what, f"{report.verdict}, {report.extent}", report.holds)
