"""Settings: what ships parses, what is wrong is refused in one line that names file, key, value and what is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm_core.config import Config
from rlm_core.config_file import load_config, parse_config
from rlm_core.errors import ConfigError

SHIPPED = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def complaint(path: Path, text: str | bytes) -> str:
    """What `load_config` says about a file with this content, after the file's name."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_configs_ship_with_the_project() -> None:
    assert {file.name for file in SHIPPED} >= {"quick.yaml", "nightly.yaml"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_a_shipped_config_parses(file: Path) -> None:
    assert load_config(file).project.startswith("project/")


def test_in_a_night_groups_without_signal_are_replaced() -> None:
    [nightly] = [file for file in SHIPPED if file.name == "nightly.yaml"]
    assert 0 < load_config(nightly).rollout.resample_budget <= 1


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing set\n")
    assert load_config(path) == parse_config({}) == Config()


def test_a_file_overrides_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("seed: 3\ntrain: {adapter: {rank: 4}}\nfilter: {prompt_chars: [1, 9], blocked: []}\n")
    config = load_config(path)
    expected = Config().dump()
    expected["seed"] = 3
    expected["train"]["adapter"]["rank"] = 4
    expected["filter"].update(prompt_chars=[1, 9], blocked=[])
    assert config.dump() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # unknown keys, with the nearest known one
        (
            "rollout: {max_token: 5}",
            "rollout.max_token: unknown setting; did you mean max_tokens? allowed: group_size, max",
        ),
        (
            "train: {adapter: {rnk: 8}}",
            "train.adapter.rnk: unknown setting; did you mean rank? allowed: kind, rank, scale, layers",
        ),
        ("train: {lora: {rank: 8}}", "train.lora: unknown setting; did you mean adapter? allowed: method"),
        ("verify: {limits: {dept: 9}}", "verify.limits.dept: unknown setting; did you mean depth? allowed: load_s"),
        ("rolout: {}", "rolout: unknown setting; did you mean rollout? allowed: project, seed, model, generate"),
        ("zzz: 1", "zzz: unknown setting; allowed: project, seed, model, generate"),
        ("zzz: 1\nqqq: 2", "trackers (and 1 more)"),
        ("1: 2", "1: unknown setting; allowed: project"),
        # wrong types
        ("seed: '1'", "seed = '1': Input should be a valid integer"),
        ("seed: true", "seed = True: Input should be a valid integer"),
        ("seed: 1.5", "seed = 1.5: Input should be a valid integer"),
        ("seed: 1.0", "seed = 1.0: Input should be a valid integer"),
        ("train: {learning_rate: fast}", "train.learning_rate = 'fast': Input should be a valid number"),
        ("train: {learning_rate: true}", "train.learning_rate = True: Input should be a valid number"),
        ("generate: {use_recursion: 1}", "generate.use_recursion = 1: Input should be a valid boolean"),
        ("generate: {use_recursion: 'yes'}", "generate.use_recursion = 'yes': Input should be a valid boolean"),
        ("model: {base: 3}", "model.base = 3: Input should be a valid string"),
        ("generate: 5", "generate = 5: Input should be an object"),
        ("generate:", "generate = None: Input should be an object"),
        ("generate: {domains: strings}", "generate.domains = 'strings': Input should be a valid array"),
        # out of range
        ("seed: -1", "seed = -1: Input should be greater than or equal to 0"),
        ("seed: 2147483648", "seed = 2147483648: Input should be less than 2147483648"),
        ("train: {adapter: {rank: 0}}", "train.adapter.rank = 0: Input should be greater than or equal to 1"),
        ("train: {learning_rate: .nan}", "train.learning_rate = nan: Input should be"),
        ("train: {method: ppo}", "train.method = 'ppo': Input should be 'grpo', 'dr_grpo', 'dapo', 'gspo', 'cispo', "),
        ("train: {clip_low: 1.1}", "train.clip_low = 1.1: Input should be less than or equal to 1"),
        (
            "train: {method: dapo, overlong_buffer: 14}",
            "train.overlong_buffer = 14: Input should be less than or equal",
        ),
        ("rollout: {group_size: 1}", "rollout.group_size = 1: Input should be greater than or equal to 2"),
        ("rollout: {top_p: 0}", "rollout.top_p = 0: Input should be greater than 0"),
        ("verify: {limits: {depth: 999}}", "verify.limits.depth = 999: Input should be less than or equal to 200"),
        ("project: ''", "project = '': String should have at least 1 character"),
        ("gate: {rule: best}", "gate.rule = 'best': Input should be 'paired', 'strict', 'threshold' or 'ema'"),
        # elements of lists
        ("generate: {domains: [dp, art]}", "generate.domains.1 = 'art': Input should be 'strings', 'arrays', 'maths'"),
        ("generate: {domains: []}", "generate.domains = []: Tuple should have at least 1 item"),
        ("filter: {prompt_chars: [20]}", "filter.prompt_chars.1 = [20]: Field required"),
        ("filter: {prompt_chars: [-1, 20]}", "filter.prompt_chars.0 = -1: Input should be greater than or equal to 0"),
        ("filter: {prompt_chars: [1, 2, 3]}", "filter.prompt_chars = [1, 2, 3]: Tuple should have at most 2 items"),
        ("filter: {blocked: [a, 3]}", "filter.blocked.1 = 3: Input should be a valid string"),
        # settings that contradict each other
        ("evaluate: {benchmark: a, holdout: a}", "evaluate.benchmark and evaluate.holdout must be different suites"),
        ("evaluate: {benchmark: 'bank:holdout'}", "evaluate.benchmark and evaluate.holdout must be different suites"),
        # settings that the chosen method has no use for
        ("train: {method: rloo, clip_low: 0.2}", "this method does not use clip_low; take it out or choose another"),
        ("train: {overlong_penalty: 1}", "this method does not use overlong_penalty; take it out or choose another"),
        ("train: {adapter: {kind: full, rank: 8}}", "train.adapter.rank = 8: kind full does not use it; take it out"),
        ("train: {adapter: {scale: 1, kind: full}}", "train.adapter.scale = 1: kind full does not use it; take it"),
        ("train: {adapter: {kind: prefix, rank: 8}}", "train.adapter.kind = 'prefix': Input should be 'lora', 'dora'"),
        # files of another kind
        ("a: [", "is not YAML: "),
        ("seed: !!int ''", "is not YAML: a tag such as !!int stands before"),
        ("a: b: c", "is not YAML: "),
        ("!!python/object/apply:os.getcwd []", "is not YAML: "),
        ("- seed", "must hold sections with settings, not a list"),
        ("seed", "must hold sections with settings, not a str"),
        (b"project: \xff", "is not UTF-8 text"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value.splitlines()[0][:40],
)
def test_a_bad_setting_is_refused_with_file_key_value_and_what_is_allowed(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    assert expected in complaint(tmp_path / "bad.yaml", text)


@pytest.mark.parametrize(
    "text",
    ["2024-01-01: 5", "generate: &a {problems: *a}", "generate: " + "[" * 900 + "]" * 900],
    ids=["key-is-a-date", "holds-itself", "nested-deep"],
)
def test_yaml_that_json_cannot_hold_is_refused(tmp_path: Path, text: str) -> None:
    assert complaint(tmp_path / "bad.yaml", text)


def test_a_blocked_pattern_that_is_no_regular_expression_is_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path / "bad.yaml", "filter: {blocked: ['fine', '(']}").startswith("filter.blocked")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "none.yaml")


def test_a_directory_is_not_a_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_the_source_of_settings_that_come_as_json_is_named() -> None:
    with pytest.raises(ConfigError, match="deployment parameters: seed = 'x': "):
        parse_config({"seed": "x"}, source="deployment parameters")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"seed": 5, "model": {"adapter": "some/where"}, "gate": {"rule": "ema"}},
        {"train": {"method": "rloo"}},
        {"train": {"adapter": {"kind": "full", "modules": ["mlp"]}}},
        {"train": {"adapter": {"kind": "dora", "rank": None, "scale": 1.5}}},
        {"train": {"method": "dapo", "overlong_buffer": 0.5, "clip_high": 0.3}},
        {"filter": {"prompt_chars": [1, 2], "blocked": ["ü\\b"]}, "verify": {"limits": {"case_s": 0.5}}},
    ],
)
def test_dump_and_parse_are_a_round_trip(content: dict[str, Any]) -> None:
    config = Config.parse(content)
    assert Config.parse(json.loads(json.dumps(config.dump()))) == config


def test_rank_and_scale_are_recorded_as_they_are_used() -> None:
    assert (Config().train.adapter.rank, Config().train.adapter.scale) == (16, 2.0)
    full = parse_config({"train": {"adapter": {"kind": "full"}}}).train.adapter
    assert (full.rank, full.scale) == (None, None)


def test_an_integer_is_a_fine_float() -> None:
    config = parse_config({"train": {"adapter": {"scale": 2}}, "verify": {"limits": {"case_s": 1}}})
    assert isinstance(config.train.adapter.scale, float)
    assert (config.train.adapter.scale, config.verify.limits.case_s) == (2.0, 1.0)


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "prefect: {verify_runner: spark}",
            "prefect.verify_runner = 'spark': Input should be 'threads', 'dask' or 'ray'",
        ),
        ("prefect: {cluster: 'tcp://a:1'}", "cluster: needs verify_runner: dask or ray"),
        ("prefect: {verify_runner: ray, cluster: auto}", "prefect.cluster = 'auto'"),
        ("prefect: {verify_runner: dask, cluster: 'tcp://a'}", "prefect.cluster = 'tcp://a'"),
    ],
)
def test_a_cluster_needs_a_runner_and_an_address(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path / "config.yaml", text)


@pytest.mark.parametrize("address", ["192.0.2.1:8786", "tcp://node:8786", "tls://node:8786", "ray://node:10001"])
def test_an_address_may_have_a_protocol(address: str) -> None:
    assert parse_config({"prefect": {"verify_runner": "dask", "cluster": address}}).prefect.cluster == address
