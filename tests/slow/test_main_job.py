"""The main job as a person runs it, with the real default model in its smallest form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlm_core.config import DEFAULT_MODEL
from rlm_core.model.base_model import base_path

SMOKE = Path(__file__).with_name("smoke.yaml")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which `rlm run` was called once: that of RLM_SMOKE_PROJECT, or a new one."""
    if given := os.environ.get("RLM_SMOKE_PROJECT"):
        return Path(given)
    root = tmp_path_factory.mktemp("smoke")
    config = root / "smoke.yaml"
    config.write_text(f"project: {root / 'project'}\n{SMOKE.read_text()}")
    environment = {**os.environ, "PREFECT_HOME": str(root / "prefect")}
    command = [sys.executable, "-m", "rlm_cli.main", "run", "--config", str(config)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    decision = json.loads((root / "project" / "runs" / "0001" / "decision.json").read_text())
    assert f"{decision['outcome']} ({decision['rule']}): {decision['reason']}" in " ".join(done.stdout.split())
    return root / "project"


def test_the_run_directory_explains_the_decision(project: Path) -> None:
    run = project / "runs" / "0001"
    decision = json.loads((run / "decision.json").read_text())
    assert decision["reason"]
    reports = [json.loads(path.read_text()) for path in (run / "exams").glob("*.json")]
    scores = {(report["policy"], report["suite"]): report["pass_at"]["1"] for report in reports}
    sat = [decision[suite] for suite in ("benchmark", "holdout") if decision[suite]]
    assert len(sat) == 2 or (sat == [decision["benchmark"]] and decision["outcome"] != "accepted")
    for compared in sat:
        assert compared["incumbent"] == scores["base", compared["suite"]]
        assert compared["candidate"] == scores[decision["candidate"]["sha256"], compared["suite"]]


def test_mlx_lm_takes_the_adapter_as_it_is(project: Path) -> None:
    adapter = project / "runs" / "0001" / "adapter"
    model = str(base_path(DEFAULT_MODEL))
    command = [sys.executable, "-m", "mlx_lm", "generate", "--model", model, "--adapter-path", str(adapter)]
    command += ["--prompt", "Write a Python function add(a, b).", "--max-tokens", "8", "--temp", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "Generation: 8 tokens" in done.stdout
