"""An iteration whose rollouts come from a server, which is gone for a moment."""

from collections.abc import Iterator
from typing import Any

import pytest

import rlm_core.rollout
from flows.iterate import iterate
from rlm_core.config_file import load_config
from rlm_core.errors import InfrastructureFault
from rlm_core.serving.remote import answers_from_servers
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests.conftest import MakeConfig
from tests.samples.serving import address_of, serving


@pytest.mark.timeout(300)  # an iteration and a server beside it
def test_an_iteration_rolls_out_through_a_server_and_tries_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone: Iterator[InfrastructureFault] = iter([InfrastructureFault("rollout.servers: gone for a moment")])
    answered: list[Any] = []

    def flaky(*given: Any) -> Any:
        for fault in gone:
            raise fault
        answered.append(answers_from_servers(*given))
        return answered[-1]

    monkeypatch.setattr(rlm_core.rollout, "answers_from_servers", flaky)
    with serving(load_config(make_config())) as server:
        config = make_config(rollout={"engine": "server", "servers": [address_of(server)]})
        iterate(str(config))
    assert len(answered) == 3
    assert "is tried again: rollout.servers: gone for a moment" in caplog.text
    with open_ledger(Project(config.with_name("project")).ledger, create=False) as ledger:
        [entry] = ledger.history()
    assert entry.decision.candidate
    assert "all answers are scored again" not in caplog.text, "the server's log-probabilities are the trainer's"
