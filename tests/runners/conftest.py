"""One Prefect server for the whole session, as the flow tests have it."""

from tests.flow.conftest import prefect_server

__all__ = ["prefect_server"]
