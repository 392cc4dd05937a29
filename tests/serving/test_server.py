"""What an OpenAI client gets: answers in every form, errors in OpenAI's, and nothing beyond the limits."""

import inspect
import json
import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
import openai
import pytest
from openai import OpenAI
from transformers import PreTrainedTokenizerBase

from rlm_core.errors import UsageError
from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef
from rlm_core.serving.server import inference_server
from tests import tiny
from tests.serving.conftest import Running, ServedProject, new_project

ASKED = [{"role": "user", "content": tiny.problem(1).prompt}]


@contextmanager
def client(running: Running, key: str = "none") -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def running(
    tiny_model: Path, adapters: list[AdapterRef], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """One for all tests that leave it as it was; that it answers the last of them is part of what they prove."""
    project = new_project(tiny_model, adapters, tmp_path_factory.mktemp("project"))
    with project.running(max_tokens=64, max_prompt_tokens=128, max_body_kb=2) as running:
        yield running


def test_chat_whole_and_streamed_is_the_policys_own_greedy_answer(running: Running, tiny_model: Path) -> None:
    policy = load_policy(str(tiny_model))
    with client(running) as openai_client:
        asked: Any = {"model": "inference", "messages": ASKED, "max_tokens": 30, "temperature": 0, "logprobs": True}
        whole = openai_client.chat.completions.create(**asked, extra_body={"return_token_ids": True})
        pieces = list(openai_client.chat.completions.create(**asked, stream=True))
    [choice] = whole.choices
    tokens, logprobs = choice.token_ids, [entry.logprob for entry in choice.logprobs.content]
    assert tuple(whole.prompt_token_ids) == policy.prompt_tokens(ASKED[0]["content"])
    assert choice.message.content == policy.text(tokens)
    assert choice.finish_reason == "stop"
    assert tokens[-1] in policy.end_tokens
    found = policy.answer_logprobs(mx.array([whole.prompt_token_ids]), mx.array([tokens]))[0].tolist()
    assert logprobs == pytest.approx(found, abs=1e-4)
    assert whole.usage.completion_tokens == len(tokens)

    assert len(pieces) > 5
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == choice.message.content
    told = [entry for piece in pieces for entry in piece.choices[0].logprobs.content]
    assert [entry.id for entry in told] == tokens
    assert [entry.logprob for entry in told] == pytest.approx(logprobs, abs=1e-4)
    assert pieces[-1].choices[0].finish_reason == "stop"
    assert {piece.system_fingerprint for piece in pieces} == {whole.system_fingerprint}


def test_completions_go_on_from_text_or_from_token_ids(running: Running, tiny_model: Path) -> None:
    policy = load_policy(str(tiny_model))
    text = "Write a Python function"
    asked: Any = {"model": "base", "max_tokens": 8, "temperature": 0, "logprobs": 3}
    with client(running) as openai_client:
        by_text = openai_client.completions.create(prompt=text, **asked)
        by_ids = openai_client.completions.create(prompt=policy.tokenizer.encode(text), **asked)
        pieces = list(openai_client.completions.create(prompt=text, stream=True, **asked))
    assert by_text.choices[0].text == by_ids.choices[0].text == "".join(piece.choices[0].text for piece in pieces)
    found = by_text.choices[0].logprobs
    assert "".join(found.tokens).startswith(by_text.choices[0].text)
    assert found.token_logprobs == [pytest.approx(max(top.values()), abs=1e-5) for top in found.top_logprobs]
    assert all(sum(math.exp(logprob) for logprob in top.values()) <= 1.001 for top in found.top_logprobs)


def test_a_prompt_that_was_just_answered_is_answered_again(running: Running) -> None:
    """The cache then holds the whole prompt, which ends mlx-lm's own thread."""
    first = running.post("completions", prompt=[5, 6, 7, 8], max_tokens=4, return_token_ids=True).json()
    ids = [5, 6, 7, 8, *first["choices"][0]["token_ids"]]
    for _ in range(2):
        assert running.post("completions", prompt=ids, max_tokens=2).status_code == 200
    assert httpx.get(f"{running.url}/health").json() == {"status": "ok"}


def test_what_mlx_lm_could_not_cut_off_is_not_cut_off(running: Running) -> None:
    assert running.post("completions", prompt="x", max_tokens=2, top_k=10**6).status_code == 200


def test_models_are_listed_with_what_proves_them(served: ServedProject) -> None:
    adapter = served.decide("accepted")
    with served.running() as running, client(running) as openai_client:
        listed: list[Any] = openai_client.models.list().data
        first, base = listed
        assert openai_client.models.retrieve("inference").id == first.id == "iteration-1"
        assert openai_client.models.retrieve(adapter.sha256) == first
        assert (first.adapter, first.pointers) == (adapter.sha256, ["accepted", "trainer", "inference"])
        assert (base.id, base.adapter, base.base) == ("base", None, first.base)
        with pytest.raises(openai.NotFoundError, match="no model 'gpt'; there are accepted"):
            openai_client.models.retrieve("gpt")


@pytest.mark.parametrize(
    ("path", "content", "status", "reason"),
    [
        ("completions", {"prompt": "x", "max_tokens": 65}, 400, "max_tokens: 65 is above this server's limit of 64"),
        ("completions", {"prompt": [7] * 129}, 400, "the prompt has 129 tokens; this server takes at most 128"),
        ("completions", {"prompt": [10**6]}, 400, "token ids must be below"),
        ("completions", {"prompt": "x", "logit_bias": {"1000000": 1}}, 400, "token ids must be below"),
        ("completions", {"prompt": ""}, 400, "prompt: is empty"),
        ("completions", {"prompt": "x", "n": 2}, 400, "n: Input should be 1"),
        ("completions", {"prompt": "x", "adapters": "/etc"}, 400, "adapters: Extra inputs are not permitted"),
        ("completions", {"prompt": "x", "temperature": -1}, 400, "temperature: "),
        ("completions", {"prompt": "x", "logit_bias": {"5": 1e39}}, 400, "logit_bias"),
        ("completions", {"prompt": "x", "logit_bias": {"9" * 1000: 1}}, 400, "logit_bias"),
        ("completions", {"prompt": "x", "frequency_penalty": -1e300}, 400, "frequency_penalty: "),
        ("completions", {"prompt": "x", "presence_penalty": 1e39}, 400, "presence_penalty: "),
        ("completions", {"prompt": "x", "repetition_penalty": 0}, 400, "repetition_penalty: "),
        ("completions", {"prompt": "x", "model": "gpt"}, 404, "no model 'gpt'; there are accepted, trainer, inference"),
        ("completions", {"prompt": "x" * 3000}, 413, "this server takes at most 2048"),
        ("chat/completions", {"messages": []}, 400, "messages: "),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
            400,
            "messages",
        ),
        ("embeddings", {"input": "x"}, 404, "no such path: /v1/embeddings"),
    ],
)
def test_what_is_refused_says_why_in_openais_form(
    running: Running, path: str, content: dict[str, object], status: int, reason: str
) -> None:
    answer = running.post(path, **content)
    error = answer.json()["error"]
    assert (answer.status_code, error.keys()) == (status, {"message", "type", "param", "code"})
    assert reason in error["message"]


def test_what_is_no_json_and_what_has_no_length_is_refused(running: Running) -> None:
    url = f"{running.url}/v1/completions"
    for body in (b"{", b"[" * 2_000, b"\xff", b"3"):
        assert httpx.post(url, content=body).status_code == 400
    assert httpx.post(url, content=iter([b"{}"])).status_code == 411
    assert httpx.options(url).status_code == 405


@pytest.mark.parametrize("length", ["-1", "+5", "5,5", "x", "٣"])
def test_a_length_that_is_no_number_is_refused(running: Running, length: str) -> None:
    assert _status_for_length(running, length) == 411


def test_a_length_of_thousands_of_digits_is_too_large(running: Running) -> None:
    assert _status_for_length(running, "9" * 5_000) == 413


def _status_for_length(running: Running, length: str) -> int:
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.server.server_port), timeout=10) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        return int(connection.recv(100).split()[1])


def test_variables_of_a_template_are_passed_on_and_nothing_else_is(running: Running) -> None:
    """A template of the client's own, with loops in it, would keep all others waiting."""
    parameters = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    for name in parameters.keys() - {"self", "kwargs"}:
        answer = running.post("chat/completions", messages=ASKED, chat_template_kwargs={name: "x"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "chat_template_kwargs"), name
    asked = {"enable_thinking": True, "custom_instructions": "x"}
    assert running.post("chat/completions", messages=ASKED, chat_template_kwargs=asked).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_waits_for_any_more_is_not_written_to_its_end(
    served: ServedProject, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    written = threading.Event()
    with served.running(max_tokens=100_000) as running:
        generator = running.server.generator
        generate = generator.generate

        def noticed(*given: Any) -> Any:
            context, answer = generate(*given)
            written.set()
            return context, answer

        monkeypatch.setattr(generator, "generate", noticed)
        endless = {str(token): -100.0 for token in load_policy(served.config.model.base).end_tokens}
        body = json.dumps({"prompt": "x", "stream": stream, "logit_bias": endless}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", running.server.server_port)) as connection:
            connection.sendall(head.encode() + body)
            assert written.wait(30)
        assert running.server.places.wait_until_free(15)
        assert running.post("completions", prompt="x", max_tokens=1).status_code == 200


def test_more_than_may_wait_is_told_to_come_later(served: ServedProject) -> None:
    with served.running(at_once=1, waiting=1) as running, running.server.places.one(), running.server.places.one():
        answer = running.post("completions", prompt="x")
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
        with client(running) as openai_client, pytest.raises(openai.RateLimitError):
            openai_client.completions.create(model="base", prompt="x")
    with served.running() as running:
        assert running.post("completions", prompt="x", max_tokens=1).status_code == 200


def test_a_token_is_asked_of_everybody_who_wants_more_than_the_health(served: ServedProject) -> None:
    with served.running(token="secret") as running:
        for key in ("none", "secret2"):
            with client(running, key) as openai_client, pytest.raises(openai.AuthenticationError):
                openai_client.models.list()
            assert running.post("completions", prompt="x").status_code == 401
        with client(running, "secret") as openai_client:
            assert openai_client.completions.create(model="base", prompt="x", max_tokens=1).model == "base"
        assert httpx.get(f"{running.url}/health").status_code == 200


def test_without_a_token_web_pages_are_not_answered(running: Running) -> None:
    for headers in ({"Origin": "http://example.org"}, {"Host": "example.org"}, {"Host": "["}):
        assert httpx.get(f"{running.url}/v1/models", headers=headers).status_code == 403
    assert "Access-Control-Allow-Origin" not in running.post("completions", prompt="x", max_tokens=1).headers


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_another_address_needs_a_token(served: ServedProject, host: str) -> None:
    with (
        pytest.raises(UsageError, match="needs a token; see --token-env"),
        inference_server(served.config, host, 0, None),
    ):
        pass


def test_a_port_that_is_taken_is_one_line(served: ServedProject) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"),
            inference_server(served.config, "127.0.0.1", port, None),
        ):
            pass


def test_requests_at_the_same_time_are_one_batch(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    kind = type(running.server.generator.model_provider.model)
    call = kind.__call__

    def counted(self: Any, tokens: mx.array, *given: Any, **named: Any) -> Any:
        sizes.append(tokens.shape[0])
        return call(self, tokens, *given, **named)

    monkeypatch.setattr(kind, "__call__", counted)
    with ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(running.post, "completions", prompt="x", max_tokens=40) for _ in range(8)]
    assert {done.result().status_code for done in asked} == {200}
    assert max(sizes) > 1


def test_a_seed_gives_the_same_answer_and_leaves_others_to_chance(running: Running) -> None:
    def text(**more: object) -> str:
        answer = running.post("completions", prompt="x", max_tokens=30, temperature=2, **more).json()
        return str(json.dumps(answer["choices"]))

    assert text(seed=3) == text(seed=3)
    after = set()
    for _ in range(8):  # two alone may be equal by lot: the tiny model's answers are short
        text(seed=3)
        after.add(text())
    assert len(after) > 1
