"""The sandbox after two thousand answers; in the default tier it is a tenth of that."""

from pathlib import Path

import pytest

from rlm_core.problems import Problem
from tests.core.sandbox.conftest import factorial as factorial
from tests.core.sandbox.conftest import needs_landlock
from tests.core.sandbox.test_sandbox_endurance import judge_in_two_threads


@pytest.mark.timeout(300)
@needs_landlock
def test_thousands_of_answers_in_two_threads(
    factorial: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_two_threads(1000, factorial, tmp_path, monkeypatch)
