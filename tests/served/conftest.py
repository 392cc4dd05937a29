"""A Prefect server and a worker, as docs/deployments.md starts them, for the whole session."""

from collections.abc import Iterator

import pytest

from tests.served.machine import SETUP, Machine, free_port


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Server, work pool, deployments and worker; all of it is ended with the session."""
    served = Machine(tmp_path_factory.mktemp("prefect"), free_port())
    server, pool, deploy, worker = SETUP
    try:
        served.start(server, "--host", "127.0.0.1", "--port", str(served.port))
        served.wait_until_up()
        served.follow(pool)
        served.follow(deploy)
        served.start(worker)
        yield served
    finally:
        served.end()
