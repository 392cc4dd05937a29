"""Fixtures that every tier shares."""

from pathlib import Path

import pytest

from tests import tiny


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tiny model, made once a session."""
    return tiny.make_model(tmp_path_factory.mktemp("tiny-model"))
