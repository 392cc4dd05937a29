"""Whatever is in a file: it is read, or refused in one line that names it. Never anything else."""

import json
import string
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm_core.answers import extract_code
from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.errors import AdapterError, ConfigError, LedgerError, ModelError, ProblemError, RlmError, StageFailed
from rlm_core.files import read_jsonl, read_record
from rlm_core.model.adapters import CONFIG, read_adapter_config
from rlm_core.model.base_model import fingerprint, number_of_layers, quantisation_bits
from rlm_core.records import AdapterRef, Rollout
from rlm_core.sources import read_problems
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project

quickly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
GOOD = {"prompt": "Double it.", "entry_point": "double", "cases": [{"input": [1], "expected": 2}]}
ROWS: list[dict[str, Any]] = [
    GOOD,
    {"prompt": "Say yes.", "verifier": {"kind": "regex", "pattern": "yes"}},
    {
        "task_id": "HumanEval/0",
        "prompt": "def f(n):\n",
        "entry_point": "f",
        "canonical_solution": "    return n\n",
        "test": "def check(candidate):\n    assert candidate(1) == 1\n",
    },
    {"task_id": 1, "text": "Double.", "code": "def f(n):\n  return n", "test_list": ["assert f(1) == 1"]},
    {
        "task_id": "a/1",
        "prompt": "def f(n):\n",
        "entry_point": "f",
        "base_input": [[1]],
        "plus_input": [],
        "contract": "",
    },
]
"""One of each format of problems."""


def assert_one_line(error: RlmError, path: Path) -> None:
    assert str(path) in str(error)
    assert "\n" not in str(error)


@st.composite
def damaged_rows(draw: st.DrawFn) -> dict[str, Any]:
    """A problem in one of the formats, with some of its fields replaced, taken out or added."""
    row = dict(draw(st.sampled_from(ROWS)))
    for name in draw(st.lists(st.sampled_from(sorted(row)), max_size=2)):
        if draw(st.booleans()):
            row[name] = draw(json_values)
        else:
            row.pop(name, None)
    return row | draw(st.dictionaries(st.text(string.ascii_lowercase, max_size=6), json_values, max_size=1))


@quickly
@given(st.text(max_size=200) | json_values.map(yaml.safe_dump))
def test_a_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_config(path)
    except ConfigError as error:
        assert_one_line(error, path)


@quickly
@given(st.sampled_from(sorted(Config.model_fields)), st.dictionaries(st.text(max_size=8), json_values, max_size=2))
def test_a_section(tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({name: content}))
    try:
        load_config(path)
    except ConfigError as error:
        assert_one_line(error, path)


@quickly
@given(st.sampled_from([".yaml", ".json", ".jsonl"]), st.text(max_size=200))
def test_a_problem_file(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"problems{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_problems(str(path))
    except ProblemError as error:
        assert_one_line(error, path)


@quickly
@given(st.sampled_from([".yaml", ".json", ".jsonl"]), st.lists(damaged_rows(), min_size=1, max_size=2))
def test_a_problem_in_any_format(tmp_path: Path, suffix: str, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / f"problems{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    try:
        read_problems(str(path))
    except ProblemError as error:
        assert_one_line(error, path)


@quickly
@given(st.text() | st.text().map(lambda text: f"```python\n{text}\n```"))
def test_an_answer(text: str) -> None:
    code = extract_code(text)
    assert code is None or code in text or code.strip() in text


@quickly
@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_an_adapters_config(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONFIG).write_bytes(content)
    try:
        assert isinstance(read_adapter_config(AdapterRef(path=str(tmp_path), sha256="0" * 64)), dict)
    except AdapterError as error:
        assert_one_line(error, tmp_path / CONFIG)


@quickly
@given(
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["text_config", "quantization", "num_layers"]), json_values).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_a_base_models_config(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    for read in (fingerprint, number_of_layers, quantisation_bits):
        try:
            read(tmp_path)
        except ModelError as error:
            assert_one_line(error, tmp_path / "config.json")


@quickly
@given(st.binary(max_size=200))
def test_a_stages_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(content)
    for read in (lambda: list(read_jsonl(path, Rollout)), lambda: read_record(path, Rollout)):
        try:
            read()
        except StageFailed as error:
            assert_one_line(error, path)


@quickly
@given(st.binary(max_size=200), st.booleans())
def test_a_ledger(tmp_path: Path, content: bytes, like_one: bool) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes((b"SQLite format 3\0" if like_one else b"") + content)
    try:
        with open_ledger(path) as ledger:
            ledger.history()
    except LedgerError as error:
        assert_one_line(error, path)


@quickly
@given(st.binary(max_size=100) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_lock_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    with Project(tmp_path).held():
        pass
