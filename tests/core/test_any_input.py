"""Whatever is in a file: it is read, or refused in one line that names it. Never anything else."""

import json
import shutil
import sqlite3
import string
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import mlx.core as mx
import yaml
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from rlm_core.answers import extract_code
from rlm_core.config import Config, RolloutSection, ServeSection
from rlm_core.config_file import load_config
from rlm_core.errors import (
    AdapterError,
    ConfigError,
    InfrastructureFault,
    LedgerError,
    ModelError,
    ProblemError,
    RlmError,
    StageFailed,
)
from rlm_core.files import read_jsonl, read_record
from rlm_core.mlxsmith.convert import migrate
from rlm_core.mlxsmith.keys import KEYS
from rlm_core.model.adapters import CONFIG, read_adapter_config
from rlm_core.model.base_model import fingerprint, number_of_layers, quantisation_bits
from rlm_core.model.decoding import Request
from rlm_core.model.loading import load_language
from rlm_core.records import AdapterRef, PolicyRef, Rollout
from rlm_core.serving.pointers import fingerprint_of
from rlm_core.serving.remote import answers_from_servers
from rlm_core.serving.requests import CHAT, TEXT, Refused, read_request
from rlm_core.sources import read_problems
from rlm_core.sources.files import FORMATS
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.training.checkpoint import read_checkpoint, write_checkpoint
from tests.samples.ledger import BASE, FIRST, decision, outcome, report, state_of

quickly = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
json_values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
GOOD = {"prompt": "Double it.", "entry_point": "double", "cases": [{"input": [1], "expected": 2}]}
ENTRIES: list[dict[str, Any]] = [
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
        "prompt": 'def f(n):\n    """Itself."""\n',
        "entry_point": "f",
        "canonical_solution": "    return n\n",
        "base_input": [[1]],
        "plus_input": [],
    },
]
"""Of each format of problems."""

TASKS: list[dict[str, Any]] = [
    {"id": "add", "prompt": "Add.", "tests": "def test(): pass", "k": 4, "max_new_tokens": 9, "temperature": 0.2},
    {"id": "yes", "prompt": "Say yes.", "verifier": "verifiers/regex.py", "verifier_kwargs": {"pattern": "yes"}},
]
"""Of an exam in YAML."""
REQUESTS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 3, "temperature": 0.5, "stop": ["no"]},
    {"prompt": [1, 2], "logprobs": 1, "logit_bias": {"1": 2.0}, "seed": 1},
]
LEARNER = PolicyRef(base="base", fingerprint="f")
_SIGNED = {"system_fingerprint": fingerprint_of(LEARNER)}
MODELS: list[dict[str, Any]] = [
    {"id": "m", "base": "f", "adapter": None, **_SIGNED},
    {"id": "m", "base": "f", "adapter": "a", "system_fingerprint": "another"},
]
CHOICES: list[dict[str, Any]] = [
    {"logprobs": {"content": [{"id": 1, "logprob": -0.5}, {"id": 2, "logprob": -1}]}},
    {"token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -1]}},
]
"""Of replies of inference servers."""


@contextmanager
def taken_or_refused(refusal: type[RlmError], path: Path) -> Iterator[None]:
    """What is read in the block is taken, or refused in one line that names the file."""
    try:
        yield
    except refusal as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)


@st.composite
def damaged(draw: st.DrawFn, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """One of them, with some of its fields replaced, taken out or added."""
    entry = dict(draw(st.sampled_from(entries)))
    for name in draw(st.lists(st.sampled_from(sorted(entry)), max_size=2)):
        if draw(st.booleans()):
            entry[name] = draw(json_values)
        else:
            entry.pop(name, None)
    return entry | draw(st.dictionaries(st.text(string.ascii_lowercase, max_size=6), json_values, max_size=1))


@quickly
@given(st.text(max_size=200) | json_values.map(yaml.safe_dump))
def test_a_config_is_read_or_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with taken_or_refused(ConfigError, path):
        load_config(path)


@quickly
@given(st.sampled_from(sorted(Config.model_fields)), st.dictionaries(st.text(max_size=8), json_values, max_size=2))
def test_a_section_is_read_or_refused_in_one_line(tmp_path: Path, name: str, content: Any) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({name: content}))
    with taken_or_refused(ConfigError, path):
        load_config(path)


@quickly
@given(st.sampled_from([".yaml", ".json", ".jsonl"]), st.text(max_size=200))
def test_a_problem_file_is_read_or_refused_in_one_line(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"problems{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with taken_or_refused(ProblemError, path):
        read_problems(str(path))


def test_what_is_damaged_is_a_good_entry_of_each_format() -> None:
    found = [next(each for each in FORMATS if each.fields <= entry.keys()) for entry in ENTRIES]
    assert set(found) == set(FORMATS)
    for each, entry in zip(found, ENTRIES, strict=True):
        assert each.problem(entry)[0].prompt


@quickly
@given(st.sampled_from([".yaml", ".json", ".jsonl"]), st.lists(damaged(ENTRIES), min_size=1, max_size=2))
def test_a_problem_in_any_format_is_read_or_refused_in_one_line(
    tmp_path: Path, suffix: str, entries: list[dict[str, Any]]
) -> None:
    path = tmp_path / f"problems{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    else:
        path.write_text(json.dumps(entries))
    with taken_or_refused(ProblemError, path):
        read_problems(str(path))


@quickly
@given(st.lists(damaged(TASKS) | json_values, max_size=2) | json_values)
def test_an_exam_is_read_or_refused_in_one_line(tmp_path: Path, tasks: Any) -> None:
    path = tmp_path / "exam.yaml"
    path.write_text(yaml.safe_dump({"tasks": tasks}))
    with taken_or_refused(ProblemError, path):
        read_problems(str(path))


@quickly
@given(
    st.text(max_size=100)
    | json_values.map(yaml.safe_dump)
    | st.tuples(st.sampled_from(sorted(KEYS)), json_values).map(lambda given: yaml.safe_dump(nested(*given)))
)
def test_a_config_of_mlxsmith_is_read_or_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mlxsmith.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with taken_or_refused(ConfigError, path):
        migrate(path)


def nested(name: str, value: Any) -> Any:
    """The setting `a.b` as a section."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


@quickly
@given(st.text() | st.text().map(lambda text: f"```python\n{text}\n```"))
def test_code_is_cut_out_of_any_answer_as_it_stands_there(text: str) -> None:
    code = extract_code(text)
    assert code is None or code in text or code.strip() in text


@quickly
@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_an_adapters_config_is_read_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CONFIG).write_bytes(content)
    with taken_or_refused(AdapterError, tmp_path / CONFIG):
        assert isinstance(read_adapter_config(AdapterRef(path=str(tmp_path), sha256="0" * 64)), dict)


@quickly
@given(
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["text_config", "quantization", "num_layers"]), json_values).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_a_base_models_config_is_read_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    for read in (fingerprint, number_of_layers, quantisation_bits):
        with taken_or_refused(ModelError, tmp_path / "config.json"):
            read(tmp_path)


@quickly
@given(st.binary(max_size=200))
def test_a_stages_file_is_read_or_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(content)
    for read in (lambda: list(read_jsonl(path, Rollout)), lambda: read_record(path, Rollout)):
        with taken_or_refused(StageFailed, path):
            read()


@quickly
@given(st.binary(max_size=200), st.booleans())
def test_a_ledger_is_read_or_refused_in_one_line(tmp_path: Path, content: bytes, like_one: bool) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes((b"SQLite format 3\0" if like_one else b"") + content)
    with taken_or_refused(LedgerError, path), open_ledger(path) as ledger:
        ledger.history()


@quickly
@given(st.binary(max_size=100) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_project_can_be_held_whatever_is_in_its_lock_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    with Project(tmp_path).held():
        pass


@quickly
@given(st.data())
def test_a_ledgers_entry_is_read_or_refused_in_one_line(tmp_path: Path, data: st.DataObject) -> None:
    """One column holds anything; the tables are as they should be."""
    path, whole = tmp_path / "ledger.sqlite", tmp_path / "whole.sqlite"
    if not whole.exists():
        with open_ledger(whole) as ledger:
            ledger.begin(BASE, FIRST)
            ledger.commit(decision(1, accepted=True, incumbent=FIRST), 0.3, [outcome("double")], {})
            ledger.save_exam("key", report())
    shutil.copyfile(whole, path)
    value = data.draw(plain | st.binary(max_size=20) | json_values.map(json.dumps))
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = data.draw(st.sampled_from(tables))
        column = data.draw(st.sampled_from([row[1] for row in connection.execute(f"PRAGMA table_info({table})")]))
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):  # SQLite does not take it, or not there
            reject()
    with taken_or_refused(LedgerError, path), open_ledger(path) as ledger:
        ledger.corpus(before=99)
        ledger.exam("key")
        state_of(ledger)


@quickly
@given(st.binary(max_size=60), st.integers(0), st.integers(1, 255))
def test_a_checkpoint_is_as_it_was_written_or_damaged(tmp_path: Path, content: bytes, at: int, bits: int) -> None:
    path = tmp_path / "checkpoint.safetensors"
    arrays, information = {"weights.a": mx.ones(3)}, {"identity": "i", "metrics": ""}
    write_checkpoint(path, arrays, information)
    altered = bytearray(path.read_bytes())
    altered[at % len(altered)] ^= bits
    for damaged_content in (content, altered):
        path.write_bytes(damaged_content)
        with suppress(OSError, RuntimeError, ValueError):  # what training takes for damage
            read, told = read_checkpoint(path)
            assert told == information
            assert bool(mx.array_equal(read["weights.a"], arrays["weights.a"]))


@quickly
@given(
    st.sampled_from([CHAT, TEXT]),
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | damaged(REQUESTS).map(lambda value: json.dumps(value).encode()),
)
def test_a_request_to_the_inference_server_is_taken_or_refused(path: str, raw: bytes) -> None:
    try:
        assert read_request(path, raw, ServeSection())["max_tokens"] >= 1
    except Refused as refused:
        assert refused.status == 400
        json.dumps(refused.content())


@quickly
@given(
    st.lists(damaged(MODELS) | json_values, max_size=2) | json_values,
    st.lists(damaged(CHOICES) | json_values, max_size=1) | json_values,
)
def test_a_reply_of_an_inference_server_is_an_answer_or_refused(tiny_model: Path, models: Any, choices: Any) -> None:
    """It is an answer, or its server is asked no more, or it has other weights. The rest of the replies is well."""

    def answer(request: httpx.Request) -> httpx.Response:
        content = {"data": models} if request.method == "GET" else {"choices": choices, **_SIGNED}
        return httpx.Response(200, text=json.dumps(content))

    client = partial(httpx.AsyncClient, transport=httpx.MockTransport(answer))
    section = RolloutSection(engine="server", servers=("http://host",), server_patience_s=0.0, max_tokens=2)
    quick = mock.patch("rlm_core.serving.remote._LOOK_EVERY_S", 0.001)
    with quick, mock.patch("httpx.AsyncClient", client), suppress(AdapterError, InfrastructureFault):
        language = load_language(str(tiny_model))
        request = Request(language.prompt_tokens("Say yes."), 0)
        [completion] = answers_from_servers(LEARNER, language, [request], section, lambda *_: None)
        assert len(completion.tokens) == len(completion.logprobs) <= 2
