"""Pytest mode, with the attacks on it, of tests/core/sandbox in a container."""

from collections.abc import Iterator

import pytest

from rlm_core.sandbox import Container, Sandbox, open_sandbox
from tests.core.sandbox.conftest import PATIENT, SHORT
from tests.core.sandbox.test_pytest_mode import *  # noqa: F403


@pytest.fixture(scope="module")
def one(container: Container) -> Iterator[Sandbox]:
    with open_sandbox("docker", PATIENT, container=container) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def short(container: Container) -> Iterator[Sandbox]:
    with open_sandbox("docker", SHORT, container=container) as sandbox:
        yield sandbox
