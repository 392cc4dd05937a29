"""The configs that benchmarks write are valid; a benchmark itself takes too long for a test."""

import importlib
from pathlib import Path

import pytest

from rlm_core.config_file import load_config

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize(("module", "arguments"), [("iteration", ()), ("scale_stubs", (10,))])
def test_a_benchmark_writes_a_config_that_is_understood(
    module: str, arguments: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    path = importlib.import_module(module).write_config(tmp_path / "project", *arguments)
    assert Path(load_config(path).project).is_relative_to(tmp_path)
