"""What a stranger installs: the wheel, in an environment of its own, away from this repository."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_wheel_installs_by_itself_and_a_new_project_of_it_works(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    [wheel] = tmp_path.glob("rlm_flows-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    run(binaries / "rlm", "init", "mine", cwd=tmp_path)
    project = tmp_path / "mine"
    for suite in ("problems.jsonl", "bank:holdout[starter]"):
        printed = run(binaries / "rlm", "exam", "--policy", "reference", "--suite", suite, cwd=project)
        assert "pass@1   1.000" in printed
    assert "SmolLM2" in next((tmp_path / "env").rglob("rlm_flows-*.dist-info/licenses/NOTICE")).read_text()
