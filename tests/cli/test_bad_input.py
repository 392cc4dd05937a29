"""What a person can get wrong: one line that names file, place, value and what is allowed; the right exit code; nothing
written. The parsers have tables of their own beside them; these go through the command."""

import json
import sqlite3
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tiny
from tests.command import Rlm, Settings, assert_refused, write

GOOD: dict[str, Any] = {
    "prompt": "Double it.",
    "entry_point": "double",
    "cases": [{"input": [n], "expected": 2 * n} for n in (1, 2)],
}

SETTINGS = [
    ("zzz", 1, "zzz: unknown setting; allowed: project, seed"),
    ("rollouts", {}, "rollouts: unknown setting; did you mean rollout?"),
    ("project", "", "project = '': String should have at least 1 character"),
    ("project", "a\0b", "project = 'a\\x00b': must not hold a NUL character"),
    ("generate.bank", "a\0.jsonl", "generate.bank = 'a\\x00.jsonl': must not hold a NUL character"),
    ("project", 3, "project = 3: Input should be a valid string"),
    ("seed", -1, "seed = -1: Input should be greater than or equal to 0"),
    ("seed", 2**31, "seed = 2147483648: Input should be less than 2147483648"),
    ("seed", "one", "seed = 'one': Input should be a valid integer"),
    ("seed", 0.5, "seed = 0.5: Input should be a valid integer"),
    ("model", [], "model = []: Input should be an object"),
    ("model.base", None, "model.base = None: Input should be a valid string"),
    ("model.revision", "main", "model.revision: unknown setting; allowed: base, adapter"),
    ("generate.problems", 0, "generate.problems = 0: Input should be greater than or equal to 1"),
    ("generate.sources", {"model": -1}, "generate.sources.model = -1: Input should be greater than 0"),
    ("generate.sources", {}, "generate.sources = {}: Dictionary should have at least 1 item"),
    ("generate.sources", {"web": 1}, "generate.sources.web = 'web': Input should be 'model', 'procedural' or 'bank'"),
    ("generate.from_model", 4, "generate.from_model: unknown setting; did you mean sources?"),
    ("generate.difficulty", {}, "generate.difficulty = {}: Dictionary should have at least 1 item"),
    ("generate.difficulty", {9: 1.0}, "generate.difficulty.9 = '9': Input should be less than or equal to 6"),
    ("generate.difficulty", {1: -1.0}, "generate.difficulty.1 = -1.0: Input should be greater than 0"),
    ("generate.domains", [], "generate.domains = []: Tuple should have at least 1 item"),
    ("generate.domains", ["poetry"], "generate.domains.0 = 'poetry': Input should be 'strings', 'arrays'"),
    ("generate.use_recursion", "yes", "generate.use_recursion = 'yes': Input should be a valid boolean"),
    ("generate.temperature", 6, "generate.temperature = 6: Input should be less than or equal to 5"),
    ("generate.max_tokens", 0, "generate.max_tokens = 0: Input should be greater than or equal to 1"),
    ("mutate.parents", 1.5, "mutate.parents = 1.5: Input should be a valid integer"),
    ("filter.prompt_chars", [1], "filter.prompt_chars.1 = [1]: Field required"),
    ("filter.max_similarity", 1.1, "filter.max_similarity = 1.1: Input should be less than or equal to 1"),
    ("filter.blocked", ["("], "filter.blocked.0 = '(': is not a regular expression"),
    ("rollout.group_size", 1, "rollout.group_size = 1: Input should be greater than or equal to 2"),
    ("rollout.temperature", 0, "rollout.temperature = 0: Input should be greater than 0"),
    ("rollout.top_p", 0, "rollout.top_p = 0: Input should be greater than 0"),
    ("rollout.top_k", -1, "rollout.top_k = -1: Input should be greater than or equal to 0"),
    ("rollout.temprature", 1, "rollout.temprature: unknown setting; did you mean temperature?"),
    ("verify.sandbox", "none", "verify.sandbox = 'none': Input should be 'auto', 'bubblewrap'"),
    ("verify.workers", 0, "verify.workers = 0: Input should be greater than or equal to 1"),
    (
        "verify.functions",
        ["os.system"],
        r"verify.functions.0 = 'os.system': String should match pattern '^[\w.]+:\w+$'",
    ),
    ("verify.max_failed_share", 2, "verify.max_failed_share = 2: Input should be less than or equal to 1"),
    ("verify.limits.depth", "deep", "verify.limits.depth = 'deep': Input should be a valid integer"),
    ("train.method", "ppo", "train.method = 'ppo': Input should be 'grpo', 'dr_grpo'"),
    ("train.learning_rate", 1, "train.learning_rate = 1: Input should be less than 1"),
    (
        "rollout.servers",
        ["http://me:secret@host:1"],
        "rollout.servers = ['http://…@host:1']: no user or password in an address",
    ),
    ("train.learning_rate", float("nan"), "train.learning_rate = nan: Input should be less than 1"),
    ("train.learning_rate", float("inf"), "train.learning_rate = inf: Input should be less than 1"),
    ("train.betas", [0.9], "train.betas.1 = [0.9]: Field required"),
    ("train.lora", {"rank": 8}, "train.lora: unknown setting; did you mean adapter?"),
    ("train.adapter.kind", "ia3", "train.adapter.kind = 'ia3': Input should be 'lora', 'dora' or 'full'"),
    ("train.adapter.rank", 0, "train.adapter.rank = 0: Input should be greater than or equal to 1"),
    ("train.adapter.modules", [], "train.adapter.modules = []: Tuple should have at least 1 item"),
    ("train.rehearsal.share", 0.95, "train.rehearsal.share = 0.95: Input should be less than or equal to 0.9"),
    ("evaluate.samples", 0, "evaluate.samples = 0: Input should be greater than or equal to 1"),
    ("gate.rule", "vote", "gate.rule = 'vote': Input should be 'paired', 'strict', 'threshold' or 'ema'"),
    ("gate.confidence", 0.5, "gate.confidence = 0.5: Input should be greater than 0.5"),
    ("gate.approve_within_s", 0, "gate.approve_within_s = 0: Input should be greater than 0"),
    ("prefect.retries", -1, "prefect.retries = -1: Input should be greater than or equal to 0"),
    (
        "prefect.cluster",
        "here",
        r"prefect.cluster = 'here': String should match pattern '^([a-z]+://)?[^\s/:]+:\d{1,5}$'",
    ),
    ("prefect.cluster", "here:1", "prefect = {'cluster': 'here:1'}: cluster: needs verify_runner: dask or ray"),
]

TEXTS: list[tuple[bytes, str]] = [
    (b"\xff", "is not UTF-8 text"),
    (b"a: [", "is not YAML"),
    (b"seed: !!int ''", "is not YAML"),
    (b"[" * 5_000, "is not YAML"),
    (b"!!python/object/apply:os.getcwd []", "is not YAML"),
    (b"just words", "must hold sections with settings, not a str"),
    (b"- 1", "must hold sections with settings, not a list"),
]

PROBLEMS: list[tuple[str, str | bytes, str]] = [
    ("a.yaml", "", "a.yaml: holds no problems"),
    ("a.json", "[]", "a.json: holds no problems"),
    ("a.jsonl", "\n", "a.jsonl: holds no problems"),
    ("a.json", "{", "a.json: is malformed"),
    ("a.json", "[" * 100_000, "a.json: is malformed"),
    ("a.yaml", "- [", "a.yaml: is malformed"),
    ("a.yaml", b"\xfe", "a.yaml: is not UTF-8 text"),
    ("a.yaml", "words", "a.yaml: problem 1: record: Input should be an object"),
    ("a.jsonl", json.dumps(GOOD) + "\n{", "a.jsonl: line 2: is not JSON: Expecting property name"),
    ("a.jsonl", json.dumps(GOOD) + "\n3", "a.jsonl: line 2: record: Input should be an object"),
    ("a.json", json.dumps(GOOD | {"prompt": ""}), "problem 1: prompt: String should have at least 1 character"),
    ("a.json", json.dumps(GOOD | {"prompt": 3}), "problem 1: prompt: Input should be a valid string"),
    ("a.json", json.dumps(GOOD | {"entry_point": "not a name"}), "problem 1: entry_point: must be a Python identifier"),
    (
        "a.json",
        json.dumps(GOOD | {"entry_point": "class"}),
        "problem 1: entry_point: must be a Python identifier and no keyword",
    ),
    ("a.json", json.dumps(GOOD | {"cases": []}), "problem 1: cases: at least one is needed"),
    ("a.json", json.dumps(GOOD | {"cases": {}}), "problem 1: cases: Input should be a valid array"),
    (
        "a.json",
        json.dumps(GOOD | {"cases": [{"input": [1]}]}),
        "problem 1: cases.0: a case needs 'expected' or 'raises'",
    ),
    ("a.json", json.dumps(GOOD | {"promt": ""}), "problem 1: promt: Extra inputs are not permitted"),
    (
        "a.json",
        json.dumps(GOOD | {"float_tolerance": -1}),
        "problem 1: float_tolerance: Input should be greater than or equal to 0",
    ),
    (
        "a.json",
        json.dumps(GOOD | {"verifier": {"kind": "luck"}}),
        "Input tag 'luck' found using 'kind' does not match any of the expected tags: 'cases', 'pytest', 'regex'",
    ),
    (
        "a.json",
        json.dumps({"prompt": "x", "verifier": {"kind": "regex", "pattern": "("}}),
        "problem 1: verifier.regex.pattern: is not a regular expression: missing )",
    ),
    ("a.json", json.dumps([GOOD, GOOD]), "double is there twice"),
    ("a.json.gz", b"no archive", "a.json.gz: cannot be read: Not a gzipped file"),
]

COMMANDS: list[tuple[list[str], int, str]] = [
    (["dance"], 2, "No such command 'dance'."),
    (["run", "-n", "0"], 2, "Invalid value for '--iterations' / '-n': Input should be greater than or equal to 1"),
    (["run", "-n", "two"], 2, "Invalid value for '--iterations' / '-n': Input should be a valid integer"),
    (["run", "--fast"], 2, "No such option: --fast"),
    (["run", "-c", "none.yaml"], 2, "none.yaml: cannot be read: No such file"),
    (["run", "-c", "."], 2, ".: cannot be read: Is a directory"),
    (["run", "-c"], 2, "Option '-c' requires an argument."),
    (["status", "-c", "none.yaml"], 2, "none.yaml: cannot be read: No such file or directory"),
    (["history", "-c", "none.yaml"], 2, "none.yaml: cannot be read: No such file or directory"),
    (["show", "0"], 2, "Invalid value for 'iteration': Input should be greater than or equal to 1"),
    (["show", "first"], 2, "Invalid value for 'iteration': Input should be a valid integer"),
    (["show"], 2, "Missing argument 'iteration'."),
    (["rollback", "-1"], 2, "No such option: -1"),
    (["rollback"], 2, "Missing argument 'iteration'."),
    (["prune", "--keep", "-1"], 2, "Invalid value for '--keep': Input should be greater than or equal to 0"),
    (["up", "--port", "0"], 2, "Invalid value for '--port': Input should be greater than or equal to 1"),
    (["up", "--port", "65536"], 2, "Invalid value for '--port': Input should be less than or equal to 65535"),
    (["up", "--at-once", "0"], 2, "Invalid value for '--at-once': Input should be greater than or equal to 1"),
    (["up"], 2, "prefect.yaml does not exist; start rlm up where prefect.yaml is"),
    (["verify"], 2, "PROBLEM and ANSWER are needed"),
    (["verify", "a.json"], 2, "PROBLEM and ANSWER are needed"),
    (["verify", "none.json", "none.py"], 2, "none.json: cannot be read: No such file or directory"),
    (["verify", "--self-test", "a.json"], 2, "--self-test brings its own answers"),
    (
        ["verify", "--partial-credit", "2", "a.json", "a.py"],
        2,
        "Invalid value for '--partial-credit': Input should be less than or equal to 1",
    ),
    (["compare", "a.json"], 2, "Missing argument 'second'."),
    (["compare", "none.json", "none.json"], 2, "none.json: cannot be read: No such file or directory"),
]

BASES: list[tuple[str | bytes, str]] = [
    ("", "config.json cannot be read"),
    (b"\xff", "config.json cannot be read"),
    ("{", "config.json cannot be read"),
    ("[" * 100_000, "config.json cannot be read"),
    ("[]", "config.json must hold a JSON object, not a list"),
    ("3", "config.json must hold a JSON object, not a int"),
]

ADAPTERS: list[tuple[str | None, str]] = [
    (None, "adapter_config.json is missing"),
    ("", "adapter_config.json cannot be read"),
    ("{", "adapter_config.json cannot be read"),
    ("[]", "adapter_config.json is no adapter config"),
    ('{"rlm": 3}', "adapter_config.json is no adapter config"),
]

LEDGERS: list[tuple[bytes, str]] = [
    (b"no database", "is damaged"),
    (b"SQLite format 3\0" + b"\0" * 4_000, "is damaged"),
    (b"x" * 100_000, "is damaged"),
]


def test_there_are_a_hundred_things_to_get_wrong() -> None:
    every: list[Sized] = [SETTINGS, TEXTS, PROBLEMS, COMMANDS, BASES, ADAPTERS, LEDGERS]
    assert sum(map(len, every)) >= 100


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Sections of a config that would work but for its base model: all that is looked at before that is right."""
    suites = [tiny.write_problems(tmp_path / f"{name}.jsonl", tiny.problems(3, i)) for i, name in enumerate("xyz")]
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    return {
        "model": {"base": str(base)},
        "generate": {"bank": suites[0]},
        "evaluate": {"benchmark": suites[1], "holdout": suites[2]},
    }


def files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


@pytest.mark.parametrize(("key", "value", "said"), SETTINGS, ids=range(len(SETTINGS)))
def test_a_wrong_setting_is_refused_in_one_line(rlm: Rlm, tmp_path: Path, key: str, value: Any, said: str) -> None:
    for part in reversed(key.split(".")):
        value = {part: value}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(value))
    before = files(tmp_path)
    assert_refused(rlm("run", "-c", "config.yaml"), 2, f"rlm: config.yaml: {said}")
    assert files(tmp_path) == before


@pytest.mark.parametrize(("text", "said"), TEXTS, ids=range(len(TEXTS)))
def test_a_config_that_is_none_is_refused_in_one_line(rlm: Rlm, tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "config.yaml").write_bytes(text)
    assert_refused(rlm("run", "-c", "config.yaml"), 2, "config.yaml: ", said)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(("name", "content", "said"), PROBLEMS, ids=range(len(PROBLEMS)))
def test_a_wrong_problem_file_is_refused_in_one_line(
    rlm: Rlm, settings: Settings, tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    settings["evaluate"]["holdout"] = name
    config = write(tmp_path, settings)
    before = files(tmp_path)
    assert_refused(rlm("run", "-c", config), 2, name, said)
    assert files(tmp_path) == before


@pytest.mark.parametrize(("words", "code", "said"), COMMANDS, ids=range(len(COMMANDS)))
def test_a_wrong_command_is_refused_in_one_line(
    rlm: Rlm, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    assert_refused(rlm(*words), code, said)
    assert files(tmp_path) == set()


@pytest.mark.parametrize(("content", "said"), BASES, ids=range(len(BASES)))
def test_a_base_model_that_is_none_is_refused_in_one_line(
    rlm: Rlm, settings: Settings, tmp_path: Path, content: str | bytes, said: str
) -> None:
    base = tmp_path / "base"
    (base / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    config = write(tmp_path, settings)
    before = files(tmp_path)
    assert_refused(rlm("run", "-c", config), 2, str(base), said)
    assert files(tmp_path) == before


@pytest.mark.parametrize(("content", "said"), ADAPTERS, ids=range(len(ADAPTERS)))
def test_an_adapter_that_is_none_is_refused_in_one_line(
    rlm: Rlm, settings: Settings, tmp_path: Path, content: str | None, said: str
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapters.safetensors").write_bytes(b"")
    if content is not None:
        (adapter / "adapter_config.json").write_text(content)
    settings["model"]["adapter"] = str(adapter)
    config = write(tmp_path, settings)
    before = files(tmp_path)
    assert_refused(rlm("run", "-c", config), 2, str(adapter), said)
    assert files(tmp_path) == before


@pytest.mark.parametrize("command", [["status"], ["history"], ["show", "1"], ["report"], ["rollback", "0"], ["prune"]])
@pytest.mark.parametrize(("content", "said"), LEDGERS, ids=range(len(LEDGERS)))
def test_a_damaged_ledger_is_refused_with_the_way_out(
    rlm: Rlm, settings: Settings, tmp_path: Path, command: list[str], content: bytes, said: str
) -> None:
    config = write(tmp_path, settings)
    ledger = tmp_path / "project" / "ledger.sqlite"
    ledger.parent.mkdir()
    ledger.write_bytes(content)
    assert_refused(rlm(*command, "-c", config), 5, str(ledger), said, "rlm doctor --rebuild-ledger")
    assert ledger.read_bytes() == content


def test_a_ledger_of_a_newer_version_is_refused_in_one_line(rlm: Rlm, settings: Settings, tmp_path: Path) -> None:
    config = write(tmp_path, settings)
    ledger = tmp_path / "project" / "ledger.sqlite"
    ledger.parent.mkdir()
    connection = sqlite3.connect(ledger)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    assert_refused(rlm("status", "-c", config), 5, str(ledger), "999")


def test_a_good_problem_of_the_tables_is_taken(rlm: Rlm, tmp_path: Path) -> None:
    """Otherwise the rows above could be refused for what they have in common."""
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    (tmp_path / "a.py").write_text("def double(n):\n    return 2 * n\n")
    assert rlm("verify", "a.json", "a.py").code == 0
