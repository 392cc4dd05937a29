"""Fixtures of the command's tests; sandboxes, the loaded model and the self-test with few answers are the core's."""

from pathlib import Path

import pytest

from tests import tiny
from tests.core.conftest import few as few
from tests.core.conftest import policy as policy
from tests.core.conftest import pytest_generate_tests as pytest_generate_tests


@pytest.fixture
def suite(tmp_path: Path) -> str:
    """Sixteen problems for an exam."""
    return tiny.write_problems(tmp_path / "suite.jsonl", [tiny.problem(2, i) for i in range(16)])
