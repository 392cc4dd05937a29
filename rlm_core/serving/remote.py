"""Answers from inference servers: `rlm serve`, mlx-lm's own, vLLM.

Tokens in, tokens out: what a server wrote is taken by its token ids with the log-probability of each. Each request goes
to whichever server has a place free, so a faster one answers more. A server that fails is left out until it is there
again, and what it was asked goes to the others; when none has been there for a while, the shard fails and its task is
tried again.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from rlm_core import progress
from rlm_core.config import RolloutSection
from rlm_core.errors import AdapterError, ConfigError, InfrastructureFault, one_line
from rlm_core.model.decoding import Completion, Request
from rlm_core.model.language import Language
from rlm_core.records import PolicyRef
from rlm_core.serving.pointers import fingerprint_of

_READY_S = 30.0
"""How long a server has to say that it is there, and who it is."""
_HEALTH_EVERY_S = 10.0
"""How often it is asked while it answers: from a host that was cut off nothing comes, not even an error."""
_BACK_EVERY_S = 2.0
"""How soon one that is gone, or refuses, is looked for; then after twice as long, and so on."""
_BACK_AT_MOST_S = 10.0
"""But no later than this: servers that are there again must be found within the patience that is usual."""
_JITTER = 0.5
"""Share by which such a wait is longer or shorter, so that those who wait do not all come at once."""
_LOOK_EVERY_S = 0.5
"""How long a request to stop may go unnoticed."""

_log = logging.getLogger(__name__)
_chance = random.Random()
"""Of its own: nothing that is drawn elsewhere may depend on how often a server was waited for."""


class _Unusable(Exception):
    """A server did not answer, or not in a way that can be used: others may."""


def answers_from_servers(
    learner: PolicyRef,
    language: Language,
    requests: Sequence[Request],
    section: RolloutSection,
    on_tokens: Callable[[int, int], None],
) -> list[Completion]:
    """Answer every request, as `Policy.sample` does, by `section.servers`.

    The draws are the servers' own: a request's seed decides nothing here.

    Args:
        on_tokens: as in `Policy.sample`; what it raises ends all requests.

    Raises:
        AdapterError: a server has another base model or does not have the learner's adapter.
        ConfigError: the token's environment variable is not set.
        InfrastructureFault: no server has answered for `section.server_patience_s`.
    """
    return asyncio.run(_Asking(learner, language, requests, section, on_tokens).run())


@dataclass(frozen=True)
class _Answer:
    tokens: list[int]
    logprobs: list[float]


class _Asking:
    """One shard's requests on their way."""

    def __init__(
        self,
        learner: PolicyRef,
        language: Language,
        requests: Sequence[Request],
        section: RolloutSection,
        on_tokens: Callable[[int, int], None],
    ):
        self._learner, self._language, self._section, self._on_tokens = learner, language, section, on_tokens
        self._requests = requests
        self._waiting: asyncio.Queue[int] = asyncio.Queue()
        self._done: dict[int, Completion] = {}
        self._over = asyncio.Event()
        self._faults: list[str] = []
        self._usable = set(section.servers)
        """Those that are asked, and in the beginning those of which nothing is known yet."""
        self._answered = set[str]()
        """Those that have answered since they were last found to be there."""
        self._last_sign = time.monotonic()
        """When a server answered, or was at work on it."""

    async def run(self) -> list[Completion]:
        async with httpx.AsyncClient(headers=authorization(self._section), timeout=None) as client:
            for index in range(len(self._requests)):
                self._waiting.put_nowait(index)
            using = [asyncio.create_task(self._use(client, url)) for url in self._section.servers]
            over = asyncio.create_task(self._over.wait())
            try:
                await self._watch(using, over)
            finally:
                await _cancel([*using, over])
        return [self._done[index] for index in range(len(self._requests))]

    async def _watch(self, using: Sequence[asyncio.Task[None]], over: asyncio.Task[Any]) -> None:
        """Until all is answered; raises what a use of a server raised, or what `progress.check` does."""
        while not self._over.is_set():
            ended, _ = await asyncio.wait({*using, over}, timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            progress.check("rollout")
            for task in ended:
                task.result()
            if not self._usable and time.monotonic() - self._last_sign >= self._section.server_patience_s:
                raise InfrastructureFault(f"rollout.servers: none answers any more; {'; '.join(self._faults)}")

    async def _use(self, client: httpx.AsyncClient, url: str) -> None:
        """Ask a server whenever it is there."""
        wait_s = _BACK_EVERY_S
        while True:
            self._answered.discard(url)
            if await self._is_ready(client, url):
                if url not in self._usable:
                    _log.warning("rollout: a server is asked again: %s", url)
                    self._usable.add(url)
                await self._ask_one_server(client, url)
            self._usable.discard(url)
            if url in self._answered:
                wait_s = _BACK_EVERY_S
            await asyncio.sleep(wait_s * _chance.uniform(1 - _JITTER, 1 + _JITTER))
            wait_s = min(2 * wait_s, _BACK_AT_MOST_S)

    def _places(self) -> int:
        """How many requests a server has at a time."""
        return -(-self._section.batch_size // max(1, len(self._usable)))

    async def _is_ready(self, client: httpx.AsyncClient, url: str) -> bool:
        """Whether a server can be asked.

        Raises:
            AdapterError: it answers, and would answer as another policy.
        """
        try:
            await _get(client, f"{url}/health")
            if self._section.server_kind == "rlm":
                self._check_identity(url, await _get(client, f"{url}/v1/models"))
        except _Unusable as fault:
            self._leave_out(url, fault)
            return False
        return True

    def _check_identity(self, url: str, content: Any) -> None:
        listed = content.get("data") if isinstance(content, dict) else None
        models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
        if any(model.get("system_fingerprint") == fingerprint_of(self._learner) for model in models):
            return
        bases = [model.get("base") for model in models]
        if all(base is None for base in bases):
            raise AdapterError(f"{url} does not say whose weights it serves; see rollout.server_kind")
        if self._learner.fingerprint not in bases:
            raise AdapterError(f"{url} serves another base model than {self._learner.base!r}")
        known = ", ".join(f"{model.get('id')} ({str(model.get('adapter') or 'base')[:12]})" for model in models)
        raise AdapterError(f"{url} does not have the adapter {self._learner.name[:12]} of this project but {known}")

    def _leave_out(self, url: str, fault: _Unusable) -> None:
        text = f"{url}: {_without_token(str(fault), self._section)}"
        if text not in self._faults:
            self._faults.append(text)
            _log.warning("rollout: a server is asked less or no more: %s", text)

    async def _ask_one_server(self, client: httpx.AsyncClient, url: str) -> None:
        """Ask a server until it cannot be asked any more."""
        asking: dict[int, asyncio.Task[None]] = {}
        health = asyncio.create_task(self._until_gone(client, url))
        ended: set[asyncio.Task[None]] = set()
        try:
            while True:
                if not ended:  # a place that was refused waits, as do those that another server's end makes
                    free = set(range(self._places())) - asking.keys()
                    asking |= {place: asyncio.create_task(self._keep_busy(client, url, place)) for place in free}
                ended, _ = await asyncio.wait(
                    {*asking.values(), health}, timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
                asking = {place: task for place, task in asking.items() if task not in ended}
                if not asking or health in ended:
                    return
                self._last_sign = time.monotonic()
        finally:
            await _cancel([*asking.values(), health])

    async def _keep_busy(self, client: httpx.AsyncClient, url: str, place: int) -> None:
        """Keep one place of a server busy, until it refuses or other servers have taken the place over."""
        while place < self._places():
            index = await self._waiting.get()
            try:
                completion = await self._ask(client, url, self._requests[index])
            except _Unusable as fault:
                self._waiting.put_nowait(index)
                self._leave_out(url, fault)
                return
            except asyncio.CancelledError:
                self._waiting.put_nowait(index)
                raise
            self._done[index] = completion
            self._answered.add(url)
            self._last_sign = time.monotonic()
            self._on_tokens(len(completion.tokens), 1)
            if len(self._done) == len(self._requests):
                self._over.set()

    async def _until_gone(self, client: httpx.AsyncClient, url: str) -> None:
        try:
            while True:
                await asyncio.sleep(_HEALTH_EVERY_S)
                await _get(client, f"{url}/health")
        except _Unusable as fault:
            self._leave_out(url, fault)

    async def _ask(self, client: httpx.AsyncClient, url: str, request: Request) -> Completion:
        try:
            response = await client.post(f"{url}/v1/completions", json=self._body(request))
        except httpx.HTTPError as error:
            raise _Unusable(one_line(error) or type(error).__name__) from error
        content = _content(response)
        if not isinstance(content, dict):
            raise _Unusable("its answer is no JSON object")
        if self._section.server_kind == "rlm" and content.get("system_fingerprint") != fingerprint_of(self._learner):
            raise AdapterError(f"{url} answered as {content.get('system_fingerprint')!r}, not as {self._learner.name}")
        try:
            return self._completion(request, _read(content))
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise _Unusable(f"its answer has no token ids with log-probabilities: {error!r}") from error

    def _body(self, request: Request) -> dict[str, Any]:
        section = self._section
        body = {
            "prompt": list(request.prompt_tokens),
            "max_tokens": section.max_tokens,
            "temperature": section.temperature,
            "top_p": section.top_p,
        }
        if section.server_kind == "vllm":
            # A model's own generation config would be followed by vLLM in what is not said.
            neutral = {"repetition_penalty": 1.0, "min_p": 0.0, "top_k": section.top_k or -1}
            return body | neutral | {"model": section.server_model, "logprobs": 1, "return_token_ids": True}
        body |= {"top_k": section.top_k, "logprobs": True}
        if section.server_kind == "rlm":
            return body | {"model": self._learner.name}
        text = self._language.prompt_text(request.prompt_tokens)
        if text is None:
            raise AdapterError(f"{self._learner.base!r}: mlx_lm.server would not read a prompt as it is meant")
        adapter = self._learner.adapter
        model = section.server_model or self._learner.base
        return body | {"prompt": text, "model": model} | ({"adapters": adapter.path} if adapter else {})

    def _completion(self, request: Request, answer: _Answer) -> Completion:
        """The answer up to where ours end: servers go on after a whole block of code, and may know fewer end tokens."""
        if len(answer.tokens) != len(answer.logprobs) or not answer.tokens:
            raise ValueError(f"{len(answer.tokens)} tokens, {len(answer.logprobs)} log-probabilities")
        for length in range(1, len(answer.tokens) + 1):
            reason = self._language.why_ended(request, answer.tokens[:length], self._section.stop_after_code)
            if reason:
                return Completion(answer.tokens[:length], answer.logprobs[:length], reason)
        if len(answer.tokens) < self._section.max_tokens:
            raise ValueError("it ended without an end token")
        return Completion(answer.tokens, answer.logprobs, "length")


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def authorization(section: RolloutSection) -> dict[str, str]:
    """The header with which servers are asked; empty when no token is configured.

    Raises:
        ConfigError: the token's environment variable is not set, or holds no token.
    """
    name = section.server_token_env
    if name is None:
        return {}
    token = _token(section)
    if not token:
        raise ConfigError(f"rollout.server_token_env = {name!r}: this environment variable is not set")
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"rollout.server_token_env = {name!r}: what it holds is no token: printable ASCII is allowed")
    return {"Authorization": f"Bearer {token}"}


def _token(section: RolloutSection) -> str:
    return os.environ.get(section.server_token_env or "", "").strip()


def _without_token(text: str, section: RolloutSection) -> str:
    """What a server says may repeat what it was sent."""
    token = _token(section)
    return text.replace(token, "…") if token else text


async def _get(client: httpx.AsyncClient, url: str) -> Any:
    try:
        response = await client.get(url, timeout=_READY_S)
    except httpx.HTTPError as error:
        raise _Unusable(one_line(error) or type(error).__name__) from error
    return _content(response)


def _content(response: httpx.Response) -> Any:
    """Raises _Unusable when a server refuses."""
    if response.status_code != 200:
        raise _Unusable(f"{response.status_code}: {one_line(response.text, 200)}")
    try:
        return response.json() if response.content else {}
    except (ValueError, RecursionError) as error:
        raise _Unusable("its answer is not JSON") from error


def _read(content: dict[str, Any]) -> _Answer:
    """What was written, by vLLM or by mlx-lm. Raises KeyError and the like when it is not there."""
    choice = content["choices"][0]
    logprobs = choice["logprobs"]
    if "content" in logprobs:
        entries = logprobs["content"]
        return _Answer([int(entry["id"]) for entry in entries], [float(entry["logprob"]) for entry in entries])
    return _Answer(list(map(int, choice["token_ids"])), list(map(float, logprobs["token_logprobs"])))
