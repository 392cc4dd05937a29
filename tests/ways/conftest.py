"""The server and the worker of the served tests."""

from tests.served.conftest import machine

__all__ = ["machine"]
