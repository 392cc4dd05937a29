"""mlx-lm's HTTP handler with limits, errors in OpenAI's form, and answers that say who wrote them."""

import hmac
import io
import ipaddress
import json
import logging
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from mlx_lm.server import APIHandler, CompletionRequest, Response

from rlm_core.errors import RlmError, one_line
from rlm_core.serving.generator import ServedRequest
from rlm_core.serving.pointers import FOLLOWED, Served
from rlm_core.serving.requests import CHAT, TEXT, Refused, read_request
from rlm_core.state.ledger import PointerName

if TYPE_CHECKING:
    from rlm_core.serving.server import InferenceServer

_IDLE_S = 60.0
"""How long a client may say nothing while it is to say something."""
_PATIENCE_S = 2.0
"""How long the rest of a body that is too large is still taken in, so that the answer about it arrives."""
_LEAST_LOGPROB = -9_999.0
"""In the place of minus infinity, which JSON does not have."""

_log = logging.getLogger(__name__)


class _Aborted(BaseException):
    """Leaves mlx-lm's handler, which would make an answer of its own of any Exception."""

    def __init__(self, refusal: Refused):
        super().__init__()
        self.refusal = refusal


class _Session:
    """What the handler of one request sees of the generator; it keeps the tokens that were not told yet."""

    def __init__(self, server: "InferenceServer", client: socket.socket):
        self._generator = server.generator
        self._client = client
        self.cli_args = server.generator.cli_args
        self.request: ServedRequest | None = None
        self.prompt: list[int] = []
        self._untold: list[Response] = []

    def generate(
        self, request: ServedRequest, arguments: Any, progress_callback: Callable[[int, int], None]
    ) -> tuple[Any, Iterator[Response]]:
        try:
            context, answer = self._generator.generate(request, arguments, progress_callback)
        except Exception as error:
            raise _Aborted(_refusal(error)) from error
        self.request, self.prompt = request, context.prompt
        return context, self._noted(answer)

    def _noted(self, answer: Iterator[Response]) -> Iterator[Response]:
        try:
            for token in answer:
                if _has_gone(self._client):
                    raise ConnectionAbortedError("nobody waits for the rest of this answer")
                self._untold.append(token)
                yield token
        except ConnectionAbortedError:
            raise
        except Exception as error:
            raise _Aborted(_refusal(error)) from error

    def tell(self) -> list[Response]:
        """The tokens since it was asked last."""
        told, self._untold = self._untold, []
        return told


def _has_gone(client: socket.socket) -> bool:
    """Whether a client has closed its connection: a whole answer would be written to its end before that is noticed."""
    ready = select.poll()
    ready.register(client, select.POLLIN)
    try:
        return bool(ready.poll(0)) and not client.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _refusal(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, RlmError):
        _log.error("the adapter cannot be served: %s", error)
        return Refused(503, "the adapter cannot be loaded; the server's log says why", "adapter_unavailable")
    if isinstance(error, RuntimeError):
        _log.error("generation has ended: %s", error)
        return Refused(503, "the server is ending", "unavailable")
    return Refused(400, one_line(error, 200) or type(error).__name__, "invalid_value")


def _names_this_machine(host: str) -> bool:
    """Whether a `Host` header does. A web page whose name was made to lead here has its own name in it."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether this is an address, or the name, of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Handler(APIHandler):
    """One connection."""

    timeout = _IDLE_S
    server: "InferenceServer"
    response_generator: Any
    """The request's session."""

    def __init__(self, *given: Any, **named: Any):
        self._streaming = False
        super().__init__(*given, **named)

    # ------------------------------------------------------------------------------------------------------- requests

    def do_GET(self) -> None:
        self._guarded(self._tell)

    def do_POST(self) -> None:
        self._guarded(self._answer)

    def do_OPTIONS(self) -> None:
        self._guarded(self._refuse_method)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except _Aborted as aborted:
            self._refuse(aborted.refusal)
        except Refused as refusal:
            self._refuse(refusal)

    def _refuse_method(self) -> None:
        raise Refused(405, "only GET and POST", "method_not_allowed")

    def _tell(self) -> None:
        if self.path == "/health":
            return self._send(*((200, {"status": "ok"}) if self.server.is_healthy else (503, {"status": "ended"})))
        self._check_client()
        self.server.pointers.look(anew=True)
        models = {served.version: self._model(served) for served in self.server.pointers.all()}
        if self.path == "/v1/models":
            return self._send(200, {"object": "list", "data": list(models.values())})
        if self.path.startswith("/v1/models/"):
            _, served = self._named(self.path.removeprefix("/v1/models/"))
            return self._send(200, models[served.version])
        raise Refused(404, f"no such path: {self.path}", "not_found")

    def _model(self, served: Served) -> dict[str, Any]:
        policy = served.policy
        return {
            "id": served.version,
            "object": "model",
            "created": self.server.started,
            "owned_by": "rlm-flows",
            "base": policy.fingerprint,
            "adapter": policy.adapter.sha256 if policy.adapter else None,
            "pointers": self.server.pointers.names(served),
            "system_fingerprint": served.fingerprint,
        }

    def _named(self, name: str | None) -> tuple[PointerName | None, Served]:
        """What a request's `model` is the name of, and whether it is a pointer.

        Raises:
            Refused: nothing has this name.
        """
        pointers = self.server.pointers
        for pointer in get_args(PointerName):
            if name == pointer or (name is None and pointer == FOLLOWED):
                return pointer, pointers.at(pointer)
        served = pointers.named(str(name))
        if served is None:
            pointers.look(anew=True)
            served = pointers.named(str(name))
        if served is None:
            known = ", ".join((*get_args(PointerName), *(served.version for served in pointers.all())))
            raise Refused(404, f"no model {str(name)[:80]!r}; there are {known}", "model_not_found", "model")
        return None, served

    def _answer(self) -> None:
        if self.path not in (CHAT, TEXT):
            raise Refused(404, f"no such path: {self.path}", "not_found")
        self._check_client()
        raw = self._body()
        with self.server.places.one():
            self.server.pointers.look()
            body = read_request(self.path, raw, self.server.section)
            self._asked = self._named(body.get("model"))
            self.response_generator = _Session(self.server, self.connection)
            self._pass_on(json.dumps(body).encode())

    def _pass_on(self, body: bytes) -> None:
        """Let mlx-lm's handler read a body that it can only find good."""
        self.headers.replace_header("Content-Length", str(len(body)))
        connection, self.rfile = self.rfile, io.BytesIO(body)
        try:
            super().do_POST()
        finally:
            self.rfile = connection

    def _check_client(self) -> None:
        """Raises Refused when the token is missing, or a web page asks a server that has none."""
        token = self.server.token
        if token is not None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode(), token.encode()):
                raise Refused(401, "this server wants its token: Authorization: Bearer …", "invalid_api_key")
        elif "Origin" in self.headers or not _names_this_machine(self.headers.get("Host", "")):
            raise Refused(403, "a server without a token answers no web pages", "forbidden")

    def _body(self) -> bytes:
        """Raises Refused when it is too large, or its size is not given."""
        length = self.headers.get("Content-Length")
        if length is None or not (length.isascii() and length.isdecimal()):
            raise Refused(411, "Content-Length must be given", "length_required")
        limit = self.server.section.max_body_kb * 1024
        size = int(length[:18])  # which is too large already, and Python reads no number of thousands of digits
        if size > limit:
            self._take_in(size)
            raise Refused(413, f"the body has {size} bytes; this server takes at most {limit}", "body_too_large")
        return self.rfile.read(size)

    def _take_in(self, length: int) -> None:
        """A client that is still sending when the connection is closed never sees why."""
        deadline = time.monotonic() + _PATIENCE_S
        while length > 0 and time.monotonic() < deadline:
            taken = self.rfile.read1(min(length, 1 << 16))
            if not taken:
                return
            length -= len(taken)

    # -------------------------------------------------------------------------------------------------------- answers

    def _refuse(self, refusal: Refused) -> None:
        if self._streaming:
            self.wfile.write(f"data: {json.dumps(refusal.content())}\n\n".encode())
            return
        self._headers_buffer: list[bytes] = []  # those of an answer that was not sent
        extra = {"Retry-After": "1"} if refusal.status in (429, 503) else {}
        self._send(refusal.status, refusal.content(), extra)

    def _send(self, status: int, content: dict[str, Any], extra: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(extra or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def handle_chat_completions(self) -> ServedRequest:
        return self._served(super().handle_chat_completions())

    def handle_text_completions(self) -> ServedRequest:
        return self._served(super().handle_text_completions())

    def _served(self, request: CompletionRequest) -> ServedRequest:
        pointer, served = self._asked
        return ServedRequest(**vars(request), served=served, pointer=pointer)

    def _set_completion_headers(self, status_code: int = 200) -> None:
        super()._set_completion_headers(status_code)
        self._sign()

    def _set_stream_headers(self, status_code: int = 200) -> None:
        super()._set_stream_headers(status_code)
        self._sign()
        self._streaming = True

    def _sign(self) -> None:
        """Say who answers, in headers and in what mlx-lm puts into every piece of the answer."""
        request = self.response_generator.request
        if request is not None:
            self.requested_model = request.served.version
            self.system_fingerprint = request.served.fingerprint
            self.send_header("X-RLM-Version", request.served.version)
            self.send_header("X-RLM-Adapter", request.served.policy.name)

    def _set_cors_headers(self) -> None:
        """No other web page may read what this server says."""

    def generate_response(self, *given: Any, **named: Any) -> dict[str, Any]:
        """As in mlx-lm, with token ids and log-probabilities in OpenAI's forms, in streams too."""
        response: dict[str, Any] = super().generate_response(*given, **named)
        choice, told = response["choices"][0], self.response_generator.tell()
        if self.logprobs:
            choice["logprobs"] = self._logprobs(told)
        else:
            choice.pop("logprobs", None)
        if self.body.get("return_token_ids"):
            choice["token_ids"] = [token.token for token in told]
            if not self.stream:
                (response if self.path == CHAT else choice)["prompt_token_ids"] = self.response_generator.prompt
        return response

    def _logprobs(self, told: list[Response]) -> dict[str, Any]:
        """Of each token, at temperature 1 and before any cut: OpenAI's form, with `id` as mlx-lm has it."""
        content = [
            self._token(token.token, token.logprob)
            | {"top_logprobs": [self._token(other["id"], other["logprob"]) for other in token.top_tokens]}
            for token in told
        ]
        if self.path == CHAT:
            return {"content": content}
        return {
            "content": content,
            "tokens": [entry["token"] for entry in content],
            "token_logprobs": [entry["logprob"] for entry in content],
            "top_logprobs": [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in content],
        }

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        text = self.server.decode(token)
        return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": max(logprob, _LEAST_LOGPROB)}

    def log_message(self, format: str, *given: Any) -> None:
        _log.debug(format, *given)
