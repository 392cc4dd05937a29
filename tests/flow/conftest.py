"""One Prefect server for the whole session."""

import os
from collections.abc import Iterator

import pytest

os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"

from prefect.testing.utilities import prefect_test_harness


@pytest.fixture(scope="session", autouse=True)
def prefect_server() -> Iterator[None]:
    """A temporary server with its own database; starting it takes tens of seconds on a small machine."""
    with prefect_test_harness(server_startup_timeout=180):
        yield
