"""New adapters without a restart: each answer is of one adapter and says of which, and none is lost."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import mlx.core as mx
import numpy as np
import pytest

from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef
from tests.serving.conftest import ServedProject

CLIENTS, RELOADS, TOKENS = 32, 10, 16
PROMPT = [5, 6, 7, 8, 9]


@dataclass(frozen=True)
class Answer:
    seconds: float
    adapter: str
    version: str
    fingerprint: str
    tokens: list[int]
    logprobs: list[float]


def ask(client: httpx.Client, url: str, model: str = "inference") -> Answer:
    started = time.monotonic()
    asked = {"model": model, "prompt": PROMPT, "max_tokens": TOKENS, "logprobs": True}
    response = client.post(f"{url}/v1/completions", json=asked)
    assert response.status_code == 200, response.text
    content = response.json()
    entries = content["choices"][0]["logprobs"]["content"]
    return Answer(
        time.monotonic() - started,
        response.headers["X-RLM-Adapter"],
        response.headers["X-RLM-Version"],
        content["system_fingerprint"],
        [entry["id"] for entry in entries],
        [entry["logprob"] for entry in entries],
    )


def largest_difference(base: Path, adapter: AdapterRef, answers: list[Answer]) -> float:
    """Between what answers say of their tokens' log-probabilities and what this adapter makes of them, in nats."""
    policy = load_policy(str(base), adapter)
    rows = np.zeros((len(answers), TOKENS), dtype=np.int32)
    for row, answer in zip(rows, answers, strict=True):
        row[: len(answer.tokens)] = answer.tokens
    found = np.array(policy.answer_logprobs(mx.array([PROMPT]), mx.array(rows)))
    return max(
        float(np.abs(line[: len(answer.tokens)] - answer.logprobs).max())
        for line, answer in zip(found, answers, strict=True)
    )


def test_clients_during_reloads_get_whole_answers_of_one_adapter_each(
    served: ServedProject, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accepted = [served.decide("accepted")]
    with served.running() as running, httpx.Client(timeout=120) as client:
        ask(client, running.url)
        with ThreadPoolExecutor(CLIENTS) as clients:
            quiet = [done.result() for done in [clients.submit(ask, client, running.url) for _ in range(CLIENTS)]]
            asked = []
            for _ in range(RELOADS):
                before = [clients.submit(ask, client, running.url) for _ in range(CLIENTS)]
                before[0].result()
                accepted.append(served.decide("accepted"))
                after = ask(client, running.url)
                assert after.adapter == accepted[-1].sha256, "what is asked after a move is answered by the new adapter"
                asked += [*before, clients.submit(lambda answer: answer, after)]
            answers = [done.result() for done in asked]
    assert len(answers) == RELOADS * (CLIENTS + 1)
    assert {answer.adapter for answer in answers} == {adapter.sha256 for adapter in accepted}
    for number, adapter in enumerate(accepted, 1):
        own = [answer for answer in answers if answer.adapter == adapter.sha256]
        assert {(answer.version, answer.fingerprint[-64:]) for answer in own} == {
            (f"iteration-{number}", adapter.sha256)
        }
        assert largest_difference(tiny_model, adapter, own) < 1e-3
    mixed = [answer for answer in answers if answer.adapter == accepted[1].sha256]
    assert largest_difference(tiny_model, accepted[2], mixed) > 0.1, "another adapter's answers can be told"
    with capsys.disabled():
        print(f"\n  p99 of an answer with {CLIENTS} clients: {_p99(quiet):.2f} s, {_p99(answers):.2f} s during reloads")


def _p99(answers: list[Answer]) -> float:
    return float(np.quantile([answer.seconds for answer in answers], 0.99))


def test_a_pointer_that_follows_later_is_served_later(served: ServedProject) -> None:
    """By the iterations that `gate.infer_staleness` says."""
    with served.running() as running, httpx.Client(timeout=60) as client:
        first = served.decide("accepted", staleness=1)
        assert [ask(client, running.url, name).version for name in ("inference", "accepted")] == ["base", "iteration-1"]
        second = served.decide("accepted", staleness=1)
        assert ask(client, running.url).adapter == first.sha256
        assert ask(client, running.url, second.sha256).version == "iteration-2"


def test_who_asks_for_a_new_adapter_gets_it_although_its_ledger_seems_to_be_as_it_was(
    served: ServedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, whose clients believe for a minute what they were told of a file."""
    with served.running() as running, httpx.Client(timeout=60) as client:
        monkeypatch.setattr("rlm_core.serving.pointers.state_of", lambda _: running.server.pointers._state)
        first = served.decide("accepted")
        assert ask(client, running.url).adapter == "base"
        assert ask(client, running.url, first.sha256).adapter == first.sha256
        second = served.decide("accepted")
        listed = client.get(f"{running.url}/v1/models").json()["data"]
        assert second.sha256 in [model["adapter"] for model in listed]


def test_a_candidate_on_probation_answers_who_asks_for_it_and_nobody_else(served: ServedProject) -> None:
    with served.running() as running, httpx.Client(timeout=60) as client:
        candidate = served.decide("probation")
        for name in ("trainer", candidate.sha256, "iteration-1"):
            assert ask(client, running.url, name).adapter == candidate.sha256
        assert ask(client, running.url).adapter == "base"


def test_a_damaged_adapter_is_not_served_and_the_log_says_so(
    served: ServedProject, caplog: pytest.LogCaptureFixture
) -> None:
    first = served.decide("accepted")
    with served.running() as running, httpx.Client(timeout=60) as client:
        good = served.adapters[1]
        served.adapters = [first, AdapterRef(path=good.path, sha256="0" * 64)]
        served.decide("accepted")
        assert ask(client, running.url).adapter == first.sha256
    assert "inference stays at iteration-1" in caplog.text
