"""The Prefect server of the flow tests."""

from tests.flow.conftest import prefect_server

__all__ = ["prefect_server"]
