"""`rlm serve`: the project's adapters for OpenAI clients."""

import logging
import os
import signal
import threading
from types import FrameType

from rlm_cli.terminal import plain_console
from rlm_core.config import Config
from rlm_core.errors import UsageError
from rlm_core.serving.pointers import FOLLOWED
from rlm_core.serving.server import InferenceServer, inference_server

_console = plain_console()


def serve_project(config: Config, host: str, port: int, token_env: str | None) -> None:
    """Serve until SIGINT or SIGTERM; answers that are being written then are finished.

    Args:
        token_env: name of the environment variable with the token.

    Raises:
        UsageError: the variable is not set; and as `inference_server`.
        InfrastructureFault: generation ended by itself.
    """
    token = _token(token_env)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("rlm_core").setLevel(logging.INFO)
    with inference_server(config, host, port, token) as server:
        _end_on_signals(server)
        address = f"[{host}]" if ":" in host else host
        served = server.pointers.at(FOLLOWED).version
        _console.print(f"serving {served} at http://{address}:{server.server_port}/v1; Ctrl-C ends it", soft_wrap=True)
        server.serve_forever()


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    token = os.environ.get(name, "").strip()
    if not token:
        raise UsageError(f"--token-env {name}: this environment variable is not set")
    return token


def _end_on_signals(server: InferenceServer) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        # Not from here: it waits for the loop that the signal has interrupted.
        threading.Thread(target=server.shutdown).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
