"""A Prefect server and a worker, as docs/deployments.md starts them, for the whole session."""

from collections.abc import Iterator

import pytest

from tests.served.machine import Machine, free_port


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Server, work pool, deployments and worker; all of it is ended with the session."""
    home = tmp_path_factory.mktemp("prefect")
    served = Machine(home, free_port())
    try:
        served.start("server", "start", "--host", "127.0.0.1", "--port", str(served.port))
        served.wait_until_up()
        served.prefect("work-pool", "create", "rlm", "--type", "process")
        served.prefect("--no-prompt", "deploy", "--all")
        served.start("worker", "start", "--pool", "rlm")
        yield served
    finally:
        served.end()
