"""The promises that the tree makes about who imports what, read off every file's syntax and tried once for real."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STAGES = ("generate", "mutate", "filter", "rollout", "verify", "train", "evaluate", "gate")
INSIDE = ROOT / "rlm_core" / "sandbox" / "inside"

PACKAGES = (
    *("cpu", "sandbox", "verifiers", "selftest", "proposals", "sources", "model", "state"),
    *("proposers", "training", "serving", "exams", "pages", "trackers", "export", "starter", "mlxsmith"),
)
"""Of the core, each before those that may import it."""

RUN_CODE_MODULES = {"subprocess", "multiprocessing", "pty", "runpy", "code", "codeop"}
RUN_CODE_BUILTINS = {"exec", "eval", "compile", "__import__"}
RUN_CODE_OF_OS = ("fork", "exec", "spawn", "posix_spawn", "system", "popen")
MAY_RUN_CODE = (
    "rlm_core/cpu/blas.py",
    "rlm_core/model/default_model.py",
    "rlm_core/sandbox/",
    "rlm_core/verifiers/scorer.py",
)


def files(*folders: str) -> list[Path]:
    found = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    assert found
    return found


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def imported_modules(source: str) -> set[str]:
    """Every module that the source imports anywhere, functions included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module))
    return found


def imported(source: str) -> set[str]:
    """First part of every module that the source imports."""
    return {name.partition(".")[0] for name in imported_modules(source)}


def code_runners(source: str) -> Iterator[str]:
    """Every way of running code or programs that the source names."""
    yield from sorted(imported(source) & RUN_CODE_MODULES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUN_CODE_BUILTINS:
            yield node.func.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr.startswith(RUN_CODE_OF_OS):
                yield f"os.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"os.{alias.name}" for alias in node.names if alias.name.startswith(RUN_CODE_OF_OS))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import subprocess", ["subprocess"]),
        ("def f():\n    from subprocess import run", ["subprocess"]),
        ("import os\nos.fork()", ["os.fork"]),
        ("import os\nos.execv('/bin/sh', [])", ["os.execv"]),
        ("from os import posix_spawn", ["os.posix_spawn"]),
        ("exec('1')", ["exec"]),
        ("f(eval('1'))", ["eval"]),
        ("import re\nre.compile('exec(')\nmodel.eval()\nos.environ", []),
    ],
)
def test_the_search_for_code_runners_finds_them(source: str, expected: list[str]) -> None:
    assert list(code_runners(source)) == expected


def test_the_search_for_imports_finds_them() -> None:
    source = "import a.b, c as d\nfrom e.f import g\nfrom . import h\ndef i():\n    import j\n"
    assert imported(source) == {"a", "c", "e", "j"}


def test_the_core_imports_neither_prefect_nor_what_is_built_on_it() -> None:
    above = {"prefect", "flows", "tasks", "rlm_cli", "tests"}
    offenders = {name_of(file): found for file in files("rlm_core") if (found := imported(file.read_text()) & above)}
    assert offenders == {}


def test_the_packages_of_the_core_are_layers() -> None:
    found = {path.name for path in (ROOT / "rlm_core").iterdir() if any(path.glob("*.py"))}
    assert found == set(PACKAGES)
    for position, package in enumerate(PACKAGES):
        below = {f"rlm_core.{name}" for name in PACKAGES[: position + 1]}
        above = {f"rlm_core.{name}" for name in PACKAGES} - below
        for file in files(f"rlm_core/{package}"):
            used = {".".join(name.split(".")[:2]) for name in imported_modules(file.read_text())}
            assert used & above == set(), name_of(file)


def test_the_state_imports_no_stage() -> None:
    stages = {f"rlm_core.{stage}" for stage in STAGES}
    offenders = {
        name_of(file): found
        for file in files("rlm_core/state")
        if (found := imported_modules(file.read_text()) & stages)
    }
    assert offenders == {}


def test_reading_the_ledger_loads_neither_a_stage_nor_scipy() -> None:
    script = "import rlm_core.state.ledger, sys; print(sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    unwanted = {"scipy", *(f"rlm_core.{stage}" for stage in STAGES)}
    assert set(ast.literal_eval(ended.stdout)) & unwanted == set()


def test_importing_the_whole_core_does_not_load_prefect() -> None:
    every = [
        name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in files("rlm_core")
        if not file.is_relative_to(INSIDE)
    ]
    assert {"rlm_core", "rlm_core.model.policy", "rlm_core.sandbox.zygote"} <= set(every)
    script = (
        "import importlib, sys\n"
        f"for name in {every!r}: importlib.import_module(name)\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'prefect', 'flows', 'tasks', 'rlm_cli'}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]"), ended.stderr


def test_the_command_starts_without_what_is_slow_to_import() -> None:
    script = "import rlm_cli.main, sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(ended.stdout)) & {"prefect", "mlx_lm", "transformers", "scipy", "httpx"} == set()


MLX_LM = [
    f"rlm_core/{name}.py"
    for name in (
        *("export/gguf", "model/adapter_layers", "model/loading", "model/policy", "model/shared_prompt"),
        *("serving/generator", "serving/handler"),
    )
]
SQLITE = [f"rlm_core/state/{name}.py" for name in ("ledger", "ledger_backup", "ledger_file", "migrations", "moved")]


@pytest.mark.parametrize(
    ("library", "expected"),
    [("mlx_lm", MLX_LM), ("sqlite3", SQLITE)],
)
def test_a_library_has_no_other_importers(library: str, expected: list[str]) -> None:
    importers = [name_of(file) for file in files("rlm_core", "tasks", "flows") if library in imported(file.read_text())]
    assert importers == expected


def test_nothing_outside_the_sandbox_can_run_code() -> None:
    offenders = {
        name_of(file): found
        for file in files("rlm_core", "tasks", "flows")
        if not name_of(file).startswith(MAY_RUN_CODE) and (found := list(code_runners(file.read_text())))
    }
    assert offenders == {}


def test_every_file_that_may_run_code_is_there_and_does() -> None:
    for allowed in MAY_RUN_CODE:
        path = ROOT / allowed
        found = [path] if path.suffix else sorted(path.rglob("*.py"))
        assert any(list(code_runners(file.read_text())) for file in found), f"{allowed} needs no exception"


def test_tasks_and_flows_stay_thin() -> None:
    lengths = {name_of(file): len(file.read_text().splitlines()) for file in files("tasks", "flows")}
    assert {name: length for name, length in lengths.items() if length > 150} == {}


def test_every_function_has_at_most_fifty_lines() -> None:
    long = {
        f"{name_of(file)}: {node.name}": lines
        for file in files("rlm_core", "rlm_cli", "tasks", "flows", "bench")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > 50
    }
    assert long == {}


@pytest.mark.parametrize("stage", sorted({*STAGES} - {"filter", "train"}))
def test_a_stage_imports_no_other_stage(stage: str) -> None:
    others = {f"rlm_core.{other}" for other in STAGES}
    assert imported_modules((ROOT / "rlm_core" / f"{stage}.py").read_text()) & others == set()


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_the_same_file_name_in_both_trees(stage: str) -> None:
    assert [folder for folder in ("rlm_core", "tasks") if not (ROOT / folder / f"{stage}.py").is_file()] == []
