"""The BLAS under MLX: found once, switched off when told to, and right in both of the ways in which it is had."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm_core.cache import cache_dir
from rlm_core.cpu import blas

ROOT = Path(__file__).parents[2]
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS has Accelerate")

AGREES = """
import numpy as np
import mlx.core as mx
generator = np.random.default_rng(0)
worst = 0.0
for (m, k, n) in ((3, 5, 7), (64, 200, 33), (257, 256, 255)):
    a, b = generator.standard_normal((m, k), np.float32), generator.standard_normal((k, n), np.float32)
    with mx.stream(mx.cpu):
        x, y = mx.array(a), mx.array(b)
        x_turned, y_turned = mx.array(a.T.copy()).T, mx.array(b.T.copy()).T
        for product in (x @ y, x_turned @ y, x @ y_turned):
            worst = max(worst, float(np.abs(np.array(product) - a.astype(np.float64) @ b.astype(np.float64)).max()))
"""
PACKAGED = (
    """
import ctypes, json, os
from rlm_core.cache import cache_dir
from rlm_core.cpu import blas
del os.environ[blas.DISABLE]
blas._load_system = lambda: None
found = blas.load()
[library] = cache_dir().glob("blas-*.so")

def address(handle):
    return [ctypes.cast(getattr(handle, name), ctypes.c_void_p).value for name in blas._FORWARDED]

served = address(ctypes.CDLL(None)) == address(ctypes.CDLL(str(library)))
built = library.stat().st_mtime_ns
again = blas._forwarders(__import__("pathlib").Path(found.partition("(")[2][:-1]))
"""
    + AGREES
    + """
print(json.dumps([found, served, again == library and library.stat().st_mtime_ns == built, worst]))
"""
)


def run(script: str, **environment: str) -> Any:
    """What a new process prints as JSON."""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@on_linux
def test_a_blas_is_loaded_once_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = blas.load()
    if found is None:
        pytest.skip("this machine has no OpenBLAS; rlm doctor says how to get one")
    monkeypatch.setattr(blas, "_load_system", lambda: pytest.fail("loaded twice"))
    monkeypatch.setattr(blas, "_load_packaged", lambda: pytest.fail("loaded twice"))
    assert blas.load() == found
    assert "openblas" in found


def test_it_can_be_switched_off() -> None:
    assert (
        run("import json; from rlm_core.cpu import blas; print(json.dumps(blas.load()))", RLM_NO_OPENBLAS="1") is None
    )


@on_linux
def test_without_the_systems_the_packaged_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_loaded", None)
    monkeypatch.delenv(blas.DISABLE, raising=False)
    monkeypatch.setattr(blas, "_load_system", lambda: None)
    monkeypatch.setattr(blas, "_load_packaged", lambda: "packaged")
    assert blas.load() == "packaged"


@on_linux
def test_without_any_mlx_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_loaded", None)
    monkeypatch.delenv(blas.DISABLE, raising=False)
    monkeypatch.setattr(blas, "_load_system", lambda: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # noqa: ARG005
    assert blas.load() is None


@on_linux
@pytest.mark.parametrize("missing", ["compiler", "cache"])
def test_a_packaged_one_that_cannot_be_built_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    pytest.importorskip("scipy_openblas32")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / ("cache" if missing == "compiler" else "file")))
    if missing == "compiler":
        monkeypatch.setattr("shutil.which", lambda name: None)  # noqa: ARG005
    assert blas._load_packaged() is None


@on_linux
def test_the_packaged_one_serves_mlx_and_agrees_with_numpy(tmp_path: Path) -> None:
    pytest.importorskip("scipy_openblas32")
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    found, served, reused, worst = run(PACKAGED, RLM_NO_OPENBLAS="1", RLM_CACHE=str(tmp_path))
    assert found.startswith("scipy-openblas32 (")
    assert served, "the plain names do not lead to the forwarding functions"
    assert reused, "the forwarding functions were compiled again"
    assert worst < 1e-3


def test_a_matrix_product_agrees_with_numpy() -> None:
    assert run("import json, rlm_core\n" + AGREES + "print(json.dumps(worst))") < 1e-3


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RLM_CACHE": "/some/where", "XDG_CACHE_HOME": "/xdg"}, "/some/where"),
        ({"RLM_CACHE": "~/mine"}, "/home/me/mine"),
        ({"RLM_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/rlm-flows"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/rlm-flows"),
        ({}, "/home/me/.cache/rlm-flows"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("RLM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)
