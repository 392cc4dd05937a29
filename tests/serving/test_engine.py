"""Rollouts through servers: of the right policy, in the same distribution, and through what is left when one fails."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import LRUPromptCache
from mlx_lm.server import APIHandler, ModelProvider, ResponseGenerator
from scipy.stats import chi2_contingency

from rlm_core import rollout
from rlm_core.config import RolloutSection, ServeSection
from rlm_core.errors import AdapterError, ConfigError, InfrastructureFault, Interrupted
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.model.base_model import fingerprint
from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef, FileRef, PolicyRef, Rollout
from rlm_core.rounds import Shard
from rlm_core.serving import remote
from rlm_core.serving.generator import library_arguments
from tests import tiny
from tests.serving.conftest import ServedProject

NOBODY = "http://127.0.0.1:9"
EVERY = Shard(number=0, source="problems", first=0, problems=2, of=1)


@pytest.fixture
def problems(tmp_path: Path) -> FileRef:
    return FileRef.of(write_jsonl(tmp_path / "problems.jsonl", tiny.problems(2)))


@pytest.fixture
def sample(tmp_path: Path, tiny_model: Path, problems: FileRef) -> Callable[..., list[Rollout]]:
    """The shard's rollouts by a policy, with settings."""

    def run(adapter: AdapterRef | None, **settings: Any) -> list[Rollout]:
        learner = PolicyRef(base=str(tiny_model), fingerprint=fingerprint(tiny_model), adapter=adapter)
        section = RolloutSection.parse({"group_size": 4, "max_tokens": 12, **settings})
        made = rollout.run(tmp_path / "run", learner, problems, EVERY, section, seed=3)
        return list(read_jsonl(Path(made.files["rollouts"].path), Rollout))

    return run


def through(*urls: str, **more: Any) -> dict[str, Any]:
    return {"engine": "server", "servers": list(urls), "server_patience_s": 0, **more}


def p_value(first: list[Rollout], second: list[Rollout]) -> float:
    """How likely first tokens differ so much when both are draws of one distribution; rare ones count as one."""
    counts = [Counter(rollout.tokens[0] for rollout in rollouts) for rollouts in (first, second)]
    common = [token for token in counts[0] | counts[1] if counts[0][token] + counts[1][token] >= 10]
    table = np.array([[found[token] for token in common] for found in counts])
    rest = np.array([[found.total()] for found in counts]) - table.sum(axis=1, keepdims=True)
    table = np.hstack([table, rest]) if rest.sum() >= 10 else table
    assert table.shape[1] >= 2, "the policy is too sure of its first token for a test"
    return float(chi2_contingency(table).pvalue)


def largest_difference(base: Path, adapter: AdapterRef | None, rollouts: list[Rollout]) -> float:
    """Between recorded and computed log-probabilities, in nats."""
    policy = load_policy(str(base), adapter)
    found = [
        policy.answer_logprobs(mx.array([one.prompt_tokens]), mx.array([one.tokens]))[0].tolist() for one in rollouts
    ]
    return max(float(np.abs(np.subtract(one, own.logprobs)).max()) for one, own in zip(found, rollouts, strict=True))


def test_servers_draw_from_the_distribution_that_this_process_draws_from(
    served: ServedProject, sample: Callable[..., list[Rollout]], tiny_model: Path
) -> None:
    """The adapter is on probation: it is the learner, and not what the server shows to others."""
    adapter = served.decide("probation")
    wide = {"group_size": 100, "max_tokens": 2, "batch_size": 32}
    local, other = sample(adapter, **wide), sample(None, **wide)
    with served.running() as one, served.running() as two:
        remote = sample(adapter, **wide, **through(one.url, two.url))
        longer = sample(adapter, **through(one.url))
    same = ("problem_id", "index", "seed", "prompt_tokens")
    assert [[getattr(a, name) for name in same] for a in local] == [[getattr(a, name) for name in same] for a in remote]
    assert p_value(local, remote) > 1e-4
    assert p_value(local, other) < 1e-5, "another policy's rollouts can be told"
    assert largest_difference(tiny_model, adapter, remote[::20] + longer) < 1e-3
    assert {one.finish_reason for one in longer} <= {"stop", "length"}


def test_a_server_of_another_policy_is_refused(
    served: ServedProject,
    sample: Callable[..., list[Rollout]],
    adapters: list[AdapterRef],
    problems: FileRef,
    tmp_path: Path,
) -> None:
    with served.running() as running:
        with pytest.raises(AdapterError, match=r"does not have the adapter \w{12} of this project but base"):
            sample(adapters[3], **through(running.url, fall_back_to_local=True))
        learner = PolicyRef(base=served.config.model.base, fingerprint="other")
        section = RolloutSection.parse(through(running.url))
        with pytest.raises(AdapterError, match="serves another base model than"):
            rollout.run(tmp_path, learner, problems, EVERY, section, 0)


def test_falling_back_is_a_setting_and_is_logged(
    sample: Callable[..., list[Rollout]], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InfrastructureFault, match=f"none answers any more; {NOBODY}: "):
        sample(None, **through(NOBODY))
    assert sample(None, **through(NOBODY, fall_back_to_local=True)) == sample(None)
    assert "shard 000 is sampled in this process: rollout.servers: none answers any more" in caplog.text


def test_what_one_server_cannot_answer_goes_to_the_others(
    served: ServedProject, sample: Callable[..., list[Rollout]], caplog: pytest.LogCaptureFixture
) -> None:
    with served.running() as one, served.running(at_once=1, waiting=0) as full, full.server.places.one():
        found = sample(None, **through(NOBODY, full.url, one.url, batch_size=2, group_size=20))
    assert len(found) == 40, "and it took so long that all have been asked"
    assert f"{full.url}: 429: " in caplog.text
    assert f"asked less or no more: {NOBODY}: " in caplog.text


def test_the_token_comes_from_the_environment(
    served: ServedProject, sample: Callable[..., list[Rollout]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RLM_TEST_TOKEN", raising=False)
    with served.running(token="secret") as running:
        asked = through(running.url, server_token_env="RLM_TEST_TOKEN")
        with pytest.raises(ConfigError, match="RLM_TEST_TOKEN"):
            sample(None, **asked)
        monkeypatch.setenv("RLM_TEST_TOKEN", "secret")
        assert len(sample(None, **asked)) == 8
        with pytest.raises(InfrastructureFault, match="401"):
            sample(None, **through(running.url))


@pytest.mark.parametrize("token", ["two\nlines", "küche"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(
    sample: Callable[..., list[Rollout]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    token: str,
) -> None:
    monkeypatch.setenv("RLM_TEST_TOKEN", token)
    with pytest.raises(ConfigError, match=r"'RLM_TEST_TOKEN': .* printable ASCII is allowed") as caught:
        sample(None, **through(NOBODY, server_token_env="RLM_TEST_TOKEN"))
    assert token not in f"{caught.value} {caplog.text}"


def test_a_token_that_a_server_repeats_is_not_shown(
    sample: Callable[..., list[Rollout]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Telltale(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(f"not with {self.headers['Authorization']}".encode())

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("RLM_TEST_TOKEN", "secret-7")
    with listening(Telltale) as url, pytest.raises(InfrastructureFault, match="403: not with Bearer …") as caught:
        sample(None, **through(url, server_token_env="RLM_TEST_TOKEN"))
    assert "not with Bearer …" in caplog.text
    assert "secret-7" not in f"{caught.value} {caplog.text}"


@pytest.mark.parametrize("ready", [False, True], ids=["gone", "refuses"])
def test_a_server_without_an_answer_is_looked_for_after_twice_as_long_each_time_by_lot(
    monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 100:
            raise Interrupted("enough")

    async def is_ready(*_: object) -> bool:
        return ready

    async def ask(*_: object) -> None:
        pass

    section = RolloutSection.parse(through(NOBODY))
    asking: Any = remote._Asking(PolicyRef(base="b", fingerprint="f"), None, [], section, lambda *_: None)  # type: ignore[arg-type]
    monkeypatch.setattr(asking, "_is_ready", is_ready)
    monkeypatch.setattr(asking, "_ask_one_server", ask)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Interrupted):
        asyncio.run(asking._use(None, NOBODY))
    expected = [2.0, 4.0, 8.0] + [10.0] * 97
    shares = [wait / usual for wait, usual in zip(waits, expected, strict=True)]
    assert 0.5 <= min(shares) < 0.7 < 1.3 < max(shares) <= 1.5


# ------------------------------------------------------------------------------------------------------ other servers


@contextmanager
def listening(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_mlx_lms_own_server_serves_too_when_it_is_trusted(
    tiny_model: Path, adapters: list[AdapterRef], sample: Callable[..., list[Rollout]]
) -> None:
    arguments = library_arguments(str(tiny_model), ServeSection())
    generator = ResponseGenerator(ModelProvider(arguments), LRUPromptCache(4))
    try:
        with listening(lambda *given: QuietHandler(generator, *given, system_fingerprint="x")) as url:
            with pytest.raises(AdapterError, match=r"does not say whose weights it serves; see rollout\.server_kind"):
                sample(None, **through(url))
            found = sample(adapters[0], **through(url, server_kind="mlx_lm", trust_servers=True))
    finally:
        generator.stop_and_join()
    assert largest_difference(tiny_model, adapters[0], found) < 1e-3


class QuietHandler(APIHandler):
    def log_message(self, *_: object) -> None:
        pass

    def handle_models_request(self) -> None:
        """Without a look into this machine's cache of models."""
        self._set_completion_headers(200)
        self.end_headers()
        self.wfile.write(json.dumps({"object": "list", "data": [{"id": "model", "object": "model"}]}).encode())


def vllm(tokens: list[int], logprobs: list[float], asked: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    """A server that answers everything with the same tokens, in vLLM's form."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(b"")

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            choice = {"token_ids": tokens, "logprobs": {"token_logprobs": logprobs}, "finish_reason": "length"}
            self._send(json.dumps({"choices": [choice]}).encode())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def test_vllms_answers_are_read_and_end_where_ours_do(tiny_model: Path, sample: Callable[..., list[Rollout]]) -> None:
    policy = load_policy(str(tiny_model))
    block = policy.tokenizer.encode("```python\nx = 1\n```", add_special_tokens=False)
    more = policy.tokenizer.encode("\nand so on", add_special_tokens=False)
    asked: list[dict[str, Any]] = []
    settings = {"server_kind": "vllm", "trust_servers": True, "server_model": "m", "max_tokens": len(block + more)}
    with listening(vllm(block + more, [-0.5] * len(block + more), asked)) as url:
        found = sample(None, **through(url, **settings))
        whole = sample(None, **through(url, **settings, stop_after_code=False))
    assert {(one.tokens, one.finish_reason, len(one.logprobs)) for one in found} == {(tuple(block), "code", len(block))}
    assert {(one.tokens, one.finish_reason) for one in whole} == {(tuple(block + more), "length")}
    assert asked[0]["return_token_ids"]
    assert (asked[0]["model"], asked[0]["prompt"]) == ("m", list(found[0].prompt_tokens))


@pytest.mark.parametrize(
    ("tokens", "logprobs", "reason"),
    [([7, 8], [-1.0], "2 tokens, 1 log-probabilities"), ([7, 8], [-1.0, -1.0], "it ended without an end token")],
)
def test_answers_without_all_that_training_needs_are_refused(
    sample: Callable[..., list[Rollout]], tokens: list[int], logprobs: list[float], reason: str
) -> None:
    settings = {"server_kind": "vllm", "trust_servers": True, "server_model": "m"}
    with listening(vllm(tokens, logprobs, [])) as url, pytest.raises(InfrastructureFault, match=reason):
        sample(None, **through(url, **settings))


# ------------------------------------------------------------------------------------------ servers that come and go


TRUSTED = {"server_kind": "vllm", "trust_servers": True, "server_model": "m", "max_tokens": 2}


def test_a_faster_server_answers_more(sample: Callable[..., list[Rollout]]) -> None:
    """One that answers only when the other one has done all the rest has no more than its places' share."""
    by_slow: list[Any] = []
    by_fast: list[Any] = []
    rest_is_done = threading.Event()

    class Slow(vllm([7, 8], [-0.5, -0.5], by_slow)):  # type: ignore[misc]
        def do_POST(self) -> None:
            assert rest_is_done.wait(60)
            super().do_POST()

    class Fast(vllm([7, 8], [-0.5, -0.5], by_fast)):  # type: ignore[misc]
        def do_POST(self) -> None:
            super().do_POST()
            if len(by_fast) == 14:
                rest_is_done.set()

    with listening(Slow) as slow, listening(Fast) as fast:
        sample(None, **through(slow, fast, **TRUSTED, group_size=8, batch_size=4))
    assert (len(by_slow), len(by_fast)) == (2, 14)


def test_a_shard_waits_for_a_server_that_is_gone_and_asks_it_again(
    sample: Callable[..., list[Rollout]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there at first, and later ends with all that it was asked."""
    monkeypatch.setattr("rlm_core.serving.remote._BACK_EVERY_S", 0.05)
    answered: list[Any] = []
    gone = iter(["GET", "POST", "POST", "GET", "GET"])
    missing: list[str | None] = [next(gone)]

    class Flaky(vllm([7, 8], [-0.5, -0.5], answered)):  # type: ignore[misc]
        def fails(self) -> bool:
            if self.command != missing[0] or (self.command == "POST" and len(answered) < 3):
                return False
            missing[0] = next(gone, None)
            self.close_connection = True
            return True

        def do_GET(self) -> None:
            if not self.fails():
                super().do_GET()

        def do_POST(self) -> None:
            if not self.fails():
                super().do_POST()

    with listening(Flaky) as url:
        found = sample(None, **through(url, **TRUSTED, batch_size=2, server_patience_s=60))
    assert len(found) == len(answered) == 8
    assert missing == [None], "all of it has happened"
    assert caplog.text.count(f"a server is asked again: {url}") == 2
