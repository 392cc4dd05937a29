"""`rlm serve` as a process: it says where it is, ends when it is told to, and keeps its token to itself."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import yaml

from tests.serving.conftest import ServedProject

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "rlm_cli.main", "serve"]


def write_config(served: ServedProject, tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"project": served.config.project, "model": {"base": served.config.model.base}}))
    return str(path)


def test_it_answers_until_sigterm_and_finishes_what_it_was_writing(served: ServedProject, tmp_path: Path) -> None:
    served.decide("accepted")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLM_TEST_TOKEN": "a-secret"}
    process = subprocess.Popen(
        [*COMMAND, "--config", write_config(served, tmp_path), "--port", "0", "--token-env", "RLM_TEST_TOKEN"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"serving iteration-1 at (http://127\.0\.0\.1:\d+/v1); Ctrl-C ends it", line):
                break
        assert found, lines
        asked = {"prompt": "x", "max_tokens": 1_000, "logit_bias": {"1": -100}}
        headers = {"Authorization": "Bearer a-secret"}
        with httpx.stream("POST", f"{found[1]}/completions", json={**asked, "stream": True}, headers=headers) as answer:
            pieces = answer.iter_lines()
            first = next(pieces)
            process.send_signal(signal.SIGTERM)
            rest = list(pieces)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert first
    assert rest[-2:] == ["data: [DONE]", ""]
    assert process.returncode == 0, said
    assert "a-secret" not in "".join(lines) + said


def test_a_token_that_is_not_there_is_one_line(served: ServedProject, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--config", write_config(served, tmp_path), "--token-env", "RLM_NO_TOKEN"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "rlm: --token-env RLM_NO_TOKEN: this environment variable is not set\n",
    )
