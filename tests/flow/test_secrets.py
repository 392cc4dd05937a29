"""What is in the environment stays there: an iteration writes it into no file, log or artifact."""

import os
from pathlib import Path

import pytest
from prefect import get_client

from flows.iterate import iterate
from rlm_core.config_file import load_config
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.samples.serving import address_of, serving

NAMES = (
    "TOKEN_OF_SERVERS",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "MLFLOW_TRACKING_PASSWORD",
    "PREFECT_API_KEY_OF_ANOTHER",
    "AWS_SECRET_ACCESS_KEY",
)
"""What servers want to be shown, by the name that the config gives, and what libraries read that reach accounts."""


@pytest.mark.timeout(300)  # an iteration and a server beside it
def test_no_secret_of_the_environment_is_written_anywhere(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    secret = f"canary-{os.urandom(12).hex()}"
    for name in NAMES:
        monkeypatch.setenv(name, secret)
    with caplog.at_level("DEBUG"), serving(load_config(make_config()), token=secret) as server:
        from_a_server = {"engine": "server", "servers": [address_of(server)], "server_token_env": "TOKEN_OF_SERVERS"}
        config = make_config(rollout=from_a_server)
        iterate(str(config))
    assert Project(config.with_name("project")).run(1).is_dir()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in caplog.text
    with get_client(sync_client=True) as client:
        shown = client.read_artifacts()
        runs = client.read_flow_runs()
    assert shown and runs
    assert secret not in "".join(artifact.model_dump_json() for artifact in shown)
    assert secret not in "".join(run.model_dump_json() for run in runs)
