"""The kind `docker`, against an engine that is started here; skipped, with the reason, where there can be none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_core.sandbox import Container

# Fixtures that the tests shared with the other kinds ask for.
from tests.core.sandbox.conftest import canaries, factorial, open_kind, sandbox, sandboxes  # noqa: F401

from .engine import IMAGE, Engine, EngineUnavailable, running_engine, wait_until

_LONGEST_S = 400
"""The first test waits for the engine's image to be made."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sandbox_name" in metafunc.fixturenames:
        metafunc.parametrize("sandbox_name", ["docker"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that are shared with the other kinds, those that run in a sandbox."""
    for item in [item for item in items if Path(__file__).parent in item.path.parents]:
        assert isinstance(item, pytest.Function)
        item.add_marker(pytest.mark.timeout(_LONGEST_S))
        if "container" not in item.fixturenames and item.function.__module__ != item.module.__name__:
            items.remove(item)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        with running_engine() as engine:
            yield engine
    except EngineUnavailable as reason:
        pytest.skip(f"NO DOCKER ENGINE, so the kind `docker` is NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def container(engine: Engine) -> Container:
    return Container(image=IMAGE, host=engine.host)


@pytest.fixture(scope="session")
def sandbox_names() -> list[str]:
    return ["docker"]


@pytest.fixture(scope="module", autouse=True)
def no_container_is_left(engine: Engine) -> Iterator[None]:
    """By no test module."""
    yield
    assert wait_until(lambda: not engine.containers(), 5), engine.containers()
