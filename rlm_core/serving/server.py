"""The server: a project's adapters over HTTP, until it is told to end."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rlm_core.config import Config, ServeSection
from rlm_core.errors import InfrastructureFault, UsageError
from rlm_core.model.adapters import base_policy, first_adapter
from rlm_core.model.loading import load_language
from rlm_core.serving.generator import Generator
from rlm_core.serving.handler import Handler, is_loopback
from rlm_core.serving.pointers import Pointers
from rlm_core.serving.requests import Refused
from rlm_core.state.project import Project

_LAST_ANSWERS_S = 20.0
"""How long answers that are being written have when the server is told to end."""

_log = logging.getLogger(__name__)


class Places:
    """How many requests are being answered or wait for it."""

    def __init__(self, most: int):
        self._most = most
        self._taken = 0
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A place for the time of the block.

        Raises:
            Refused: all are taken.
        """
        with self._changed:
            if self._taken >= self._most:
                raise Refused(429, f"{self._most} requests are being answered or wait; try again later", "busy")
            self._taken += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def wait_until_free(self, seconds: float) -> bool:
        """Whether they all were free within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._taken == 0, seconds)


class InferenceServer(ThreadingHTTPServer):
    """Answers requests in threads of their own, which wait for the one that generates."""

    daemon_threads = True
    request_queue_size = 128
    """Connections that the kernel keeps until they are taken; with few, clients that come together wait a second."""

    def __init__(
        self, address: tuple[str, int], pointers: Pointers, base: str, section: ServeSection, token: str | None
    ):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pointers, self.section, self.token = pointers, section, token
        self.places = Places(section.at_once + section.waiting)
        self.started = int(time.time())
        self.decode: Callable[[int], str] = lru_cache(maxsize=None)(partial(_decoded, load_language(base).tokenizer))
        super().__init__(address, partial(Handler, None, system_fingerprint="rlm"))
        self.generator = Generator(pointers, base, section)

    @property
    def is_healthy(self) -> bool:
        return bool(self.generator.is_healthy)

    def service_actions(self) -> None:
        """Called by `serve_forever` twice a second.

        Raises:
            InfrastructureFault: nothing is generated any more.
        """
        if not self.is_healthy:
            raise InfrastructureFault("generation has ended; the lines above say why")

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  http.server's
        """A client that went away is nothing to log as an error."""
        if isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.debug("%s went away", client_address)
        else:
            _log.exception("a request failed")


def _decoded(tokenizer: Any, token: int) -> str:
    return str(tokenizer.decode([token]))


@contextmanager
def inference_server(config: Config, host: str, port: int, token: str | None) -> Iterator[InferenceServer]:
    """A server that is ready for `serve_forever`; at the end of the block it has written its last answers.

    Args:
        port: 0 takes one that is free.
        token: that every request must have, but for /health.

    Raises:
        UsageError: the address needs a token or cannot be had, or the project is about another base model.
        ModelError, AdapterError: what is to be served cannot be loaded.
        LedgerError: the ledger cannot be used.
    """
    if token is None and not is_loopback(host):
        raise UsageError(f"--host {host}: a server that other machines can reach needs a token; see --token-env")
    first = base_policy(config).model_copy(update={"adapter": first_adapter(config)})
    pointers = Pointers(Project(Path(config.project).absolute()), first)
    try:
        server = InferenceServer((host, port), pointers, config.model.base, config.serve, token)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        server.generator.model_provider.wait_until_loaded()
        yield server
        server.places.wait_until_free(_LAST_ANSWERS_S)
    finally:
        server.server_close()
        server.generator.stop_and_join()
