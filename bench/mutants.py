"""Mutation testing: which share of small changes to the code that decides is noticed by its tests.

mutmut makes the changes in a copy of the repository (`build/mutants/`) and runs the tests of the module against each. A
change that no test notices has survived, and is named. `mutmut show NAME`, in that copy, shows a change. A module takes
minutes. Exits 1 when a module missed its goal.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, finish

ROOT = Path(__file__).parents[1]
COPIED = ("rlm_cli", "flows", "tasks", "bench", "docs", "configs", "README.md")
_NOTICED = {1, 3, 36, -24, 24, 152, 255, -11, -9}
"""mutmut's exit codes of changes that made tests fail, hang or crash."""
_SURVIVED = 0


@dataclass(frozen=True)
class Target:
    """A module, the tests that have to notice, and the share of changes that they have to."""

    tests: tuple[str, ...]
    goal: float = 0.85


TARGETS = {
    "rlm_core/gate.py": Target(("tests/core/test_gate.py", "tests/core/test_gate_simulation.py")),
    "rlm_core/training/advantages.py": Target(("tests/core/test_advantages.py",)),
    "rlm_core/training/methods.py": Target(("tests/core/test_methods.py",)),
    "rlm_core/training/losses.py": Target(("tests/core/test_losses.py", "tests/core/test_methods.py")),
    "rlm_core/filter.py": Target(("tests/core/test_filter.py",)),
    "rlm_core/verifiers/values.py": Target(("tests/core/sandbox/test_sandbox_values.py",)),
}


def main(asked: list[str]) -> None:
    """Try the modules that are named, or all."""
    finish([_noticed_in(name, TARGETS[name]) for name in asked or TARGETS])


def _noticed_in(name: str, target: Target) -> Figure:
    directory = ROOT / "build" / "mutants" / Path(name).stem
    copy(directory, name, target)
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "1"], cwd=directory, check=False)
    codes: dict[str, int | None] = json.loads((directory / "mutants" / f"{name}.meta").read_text())["exit_code_by_key"]
    noticed = sum(code in _NOTICED for code in codes.values())
    print(f"{name}: {noticed} of {len(codes)} changes noticed")
    for mutant, code in codes.items():
        if code not in _NOTICED:
            print(f"    {'survived' if code == _SURVIVED else 'not tried'}: {mutant}")
    return Figure(f"share of changes noticed, {name}", noticed / len(codes), target.goal)


def copy(directory: Path, name: str, target: Target) -> None:
    """The repository's files in a place of its own, with mutmut's settings for one module."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for part in (*COPIED, "rlm_core", "tests"):
        source = ROOT / part
        ignore = shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, directory / part, ignore=ignore)
        else:
            shutil.copyfile(source, directory / part)
    settings = {
        "source_paths": ["rlm_core"],
        "only_mutate": [name],
        "also_copy": [*COPIED, "rlm_core"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-x"],
        "pytest_add_cli_args_test_selection": list(target.tests),
        "use_git_change_detection": False,
        # MLX has threads, which do not survive a fork once they have worked: tests run in children of a process that
        # only collected them.
        "process_isolation": "forkserver",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    project = (ROOT / "pyproject.toml").read_text()
    (directory / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
