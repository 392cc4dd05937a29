"""An inference server in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rlm_core.config import Config
from rlm_core.serving.server import InferenceServer, inference_server


@contextmanager
def serving(config: Config, token: str | None = None) -> Iterator[InferenceServer]:
    """A server of the config's project that answers for the time of the block."""
    with inference_server(config, "127.0.0.1", 0, token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def address_of(server: InferenceServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"
