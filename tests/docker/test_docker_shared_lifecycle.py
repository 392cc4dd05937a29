"""The lifecycle that all kinds have in common: tests/core/sandbox in a container."""

from collections.abc import Iterator

import pytest

from tests.core.sandbox.test_sandbox_lifecycle import *  # noqa: F403

from .engine import Engine, wait_until


@pytest.fixture(autouse=True)
def no_container_is_left_by_a_test(engine: Engine) -> Iterator[None]:
    yield
    assert wait_until(lambda: not engine.containers(), 3), engine.containers()
