"""A fast BLAS under MLX on a Linux CPU.

The Linux wheel of MLX links a reference BLAS that multiplies matrices at about 1 GFLOP/s. Symbols are looked up in load
order, so an OpenBLAS that is loaded globally before MLX serves MLX's calls instead, 70 to 100 times faster. On macOS,
MLX uses Accelerate and Metal and nothing is to be done.

Two places are tried: the system's libopenblas (Debian: libopenblas0-pthread), then the PyPI package scipy-openblas32.
The latter exports the same routines under names of its own; a few forwarding functions, compiled once into the cache
directory, give them their plain names.
"""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rlm_core.cache import cache_dir
from rlm_core.scratch import scratch_beside

DISABLE = "RLM_NO_OPENBLAS"
"""Environment variable that leaves MLX with its own BLAS; `rlm doctor` compares with and without."""

_FORWARDED = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
_SIGNATURE = "int o, int ta, int tb, int m, int n, int k"
_SCALARS = {"s": ("float", "float"), "d": ("double", "double"), "c": ("const void*", "void")}

_loaded: str | None = None


def load() -> str | None:
    """Load OpenBLAS into the process, once.

    Returns:
        Where it was found, or None when it is not needed (macOS), switched off, or not to be had.
    """
    global _loaded
    if _loaded is None and sys.platform.startswith("linux") and not os.environ.get(DISABLE):
        _loaded = _load_system() or _load_packaged()
    return _loaded


def _load_system() -> str | None:
    for name in ("libopenblas.so.0", "libopenblas.so"):
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return name
    return None


def _load_packaged() -> str | None:
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).parent / "lib" / "libscipy_openblas.so"
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(_forwarders(library)), mode=ctypes.RTLD_GLOBAL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"scipy-openblas32 ({library})"


def _forwarders(library: Path) -> Path:
    """The compiled forwarding functions for `library`.

    Raises:
        OSError: there is no C compiler, or the cache directory cannot be written.
        subprocess.CalledProcessError: the compiler failed.
    """
    source = _forwarding_source()
    name = hashlib.sha256((source + str(library)).encode()).hexdigest()[:16]
    target = cache_dir() / f"blas-{name}.so"
    if target.exists():
        return target
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no C compiler")
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(target) as directory:
        code, built = directory / "forward.c", directory / "forward.so"
        code.write_text(source)
        command = [compiler, "-O1", "-shared", "-fPIC", str(code), str(library), "-o", str(built)]
        subprocess.run(command, check=True, capture_output=True)
        built.replace(target)
    return target


def _forwarding_source() -> str:
    """C source of plain-named functions that call scipy-openblas32's."""
    functions = []
    for name in _FORWARDED:
        scalar, element = _SCALARS[name[len("cblas_")]]
        parameters = (
            f"{_SIGNATURE}, {scalar} alpha, const {element}* a, int lda, const {element}* b, int ldb, "
            f"{scalar} beta, {element}* c, int ldc"
        )
        functions.append(
            f"void scipy_{name}({parameters});\n"
            f"void {name}({parameters}) {{ scipy_{name}(o, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }}\n"
        )
    return "\n".join(functions)
