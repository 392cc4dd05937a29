"""`rlm init --from`: every key of mlxsmith's config has a fate, and what is kept does here what it did there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.mlxsmith.convert import Fate, migrate
from rlm_core.mlxsmith.keys import KEYS
from rlm_core.sources import read_suite
from tests.command import Rlm, assert_refused

EXAM = {
    "name": "mine",
    "tasks": [
        {
            "id": "add",
            "prompt": "Write add.",
            "k": 4,
            "verifier": "verifiers/regex.py",
            "verifier_kwargs": {"pattern": "a"},
        }
    ],
}


def migrated(tmp_path: Path, **sections: Any) -> tuple[Config, dict[str, Fate]]:
    """The config that these sections become, and what became of each key."""
    source = tmp_path / "mlxsmith.yaml"
    source.write_text(yaml.safe_dump(sections))
    migration = migrate(source)
    target = tmp_path / "rlm.yaml"
    target.write_text(migration.files["rlm.yaml"])
    return load_config(target), {fate.key: fate for fate in migration.fates}


def test_every_key_has_a_fate_and_dropped_ones_a_reason(tmp_path: Path) -> None:
    _, fates = migrated(tmp_path)
    assert fates.keys() == KEYS.keys()
    assert not any(fate.given for fate in fates.values())
    assert all(fate.text for fate in fates.values())


def test_what_the_file_leaves_alone_keeps_that_tools_default(tmp_path: Path) -> None:
    config, _ = migrated(tmp_path)
    assert config.train.learning_rate == 2e-4
    assert config.rollout.group_size == 8
    assert config.gate.rule == "strict"
    assert (config.generate.problems, config.generate.counts) == (80, {"model": 80})


@pytest.mark.parametrize(
    ("sections", "ours", "expected"),
    [
        ({"model": {"id": "some/model"}}, "model.base", "some/model"),
        ({"train": {"seed": 5}}, "seed", 5),
        ({"train": {"lr": "3e-5"}}, "train.learning_rate", 3e-5),
        ({"train": {"max_grad_norm": 2}}, "train.max_grad_norm", 2.0),
        ({"lora": {"r": 8, "alpha": 4}}, "train.adapter.scale", 0.5),
        ({"lora": {"r": 8, "scale": 3.0}}, "train.adapter.scale", 3.0),
        ({"lora": {"fine_tune_type": "dora"}}, "train.adapter.kind", "dora"),
        ({"lora": {"fine_tune_type": "full"}}, "train.adapter.rank", None),
        ({"lora": {"num_layers": 4}}, "train.adapter.layers", 4),
        (
            {"lora": {"target_modules": ["k_proj", "up_proj"]}},
            "train.adapter.modules",
            ("self_attn.k_proj", "mlp.up_proj"),
        ),
        ({"rft": {"normalize_advantage": False}}, "train.method", "dr_grpo"),
        ({"rft": {"kl_coeff": 0.1}}, "train.kl_weight", 0.0),
        ({"rft": {"kl_coeff": 0.1, "reference_model": "m"}, "model": {"id": "m"}}, "train.kl_weight", 0.1),
        ({"rft": {"temperature": 0.5}}, "generate.temperature", 0.5),
        ({"infer": {"top_k": 40}}, "rollout.top_k", 40),
        ({"rlm": {"tasks_per_iter": 7}}, "generate.problems", 7),
        ({"rlm": {"mix_old_ratio": 0.25}}, "train.rehearsal.share", 0.25),
        ({"rlm": {"hard_ratio": 0.75}}, "train.rehearsal.hard_share", 0.75),
        ({"rlm": {"mutations_per_task": 2}}, "mutate.per_problem", 2),
        ({"rlm": {"mutations_per_task": 2, "use_task_mutation": False}}, "mutate.per_problem", 0),
        ({"rlm": {"gating": "ema", "gating_ema_alpha": 0.5}}, "gate.ema_weight", 0.5),
        ({"rlm": {"gating": "threshold", "gating_threshold": 0.125}}, "gate.min_gain", 0.125),
        ({"rlm": {"infer_staleness": 2}}, "gate.infer_staleness", 2),
        ({"rlm": {"task_domains": ["math", "dp"]}}, "generate.domains", ("maths", "dp")),
        ({"rlm": {"min_task_desc_len": 30, "max_task_prompt_len": 99}}, "filter.prompt_chars", (30, 99)),
        ({"rlm": {"blocked_task_patterns": ["rm"]}}, "filter.blocked", ("(?i)rm",)),
        ({"rlm": {"verifier_backend": "docker", "docker_pids": 9}}, "verify.container.pids", 9),
        ({"rlm": {"verifier_backend": "docker"}}, "verify.sandbox", "docker"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_key_becomes_the_setting_that_does_the_same(
    tmp_path: Path, sections: dict[str, Any], ours: str, expected: object
) -> None:
    found: Any = migrated(tmp_path, **sections)[0]
    for part in ours.split("."):
        found = getattr(found, part)
    assert found == expected


def test_a_value_that_is_not_allowed_here_is_dropped_with_the_reason(tmp_path: Path) -> None:
    config, fates = migrated(tmp_path, rlm={"rollouts_per_task": 1, "min_task_asserts": 5})
    assert config.rollout.group_size == 8
    assert fates["rlm.rollouts_per_task"].word == "dropped"
    assert "greater than or equal to 2" in fates["rlm.rollouts_per_task"].text
    assert config.filter.min_cases == 5


def test_a_key_that_the_tool_does_not_know_is_named(tmp_path: Path) -> None:
    _, fates = migrated(tmp_path, rlm={"frobnicate": 1})
    assert (fates["rlm.frobnicate"].word, fates["rlm.frobnicate"].given) == ("dropped", True)


def write_exam(tmp_path: Path, name: str, content: object) -> None:
    (tmp_path / "eval").mkdir(exist_ok=True)
    (tmp_path / "eval" / name).write_text(yaml.safe_dump(content))


def test_exams_are_copied_and_can_be_sat(rlm: Rlm, tmp_path: Path) -> None:
    write_exam(tmp_path, "bench.yaml", EXAM)
    write_exam(tmp_path, "holdout.yaml", {**EXAM, "config": {"model": {"id": "x"}}})
    suites = {"benchmark_suite": "eval/bench.yaml", "holdout_suite": "eval/holdout.yaml"}
    (tmp_path / "mlxsmith.yaml").write_text(yaml.safe_dump({"rlm": suites}))
    done = rlm("init", "new", "--from", "mlxsmith.yaml")
    assert done.code == 0, done.err
    config = load_config(tmp_path / "new" / "rlm.yaml")
    assert (config.evaluate.benchmark, config.evaluate.holdout) == ("benchmark.yaml", "holdout.yaml")
    for name in suites:
        suite = read_suite(str(tmp_path / "new" / f"{name.removesuffix('_suite')}.yaml"))
        assert suite.asking(suite.problems[0]).k == 4
    sat = rlm("exam", "--json", "-c", "new/rlm.yaml", "-p", "empty", "-s", "new/benchmark.yaml")
    assert sat.code == 0, sat.err
    assert (json.loads(sat.out)["k"], json.loads(sat.out)["pass_at_own_k"]) == (4, 0.0)
    page = (tmp_path / "new" / "migrated.md").read_text()
    assert '| rlm.holdout_suite | "eval/holdout.yaml" | changed |' in page


def test_an_exam_that_cannot_be_sat_here_gives_way_to_the_bank_and_says_why(tmp_path: Path) -> None:
    write_exam(tmp_path, "bench.yaml", {"tasks": [{"id": "a", "prompt": "Say yes."}]})
    same = {"benchmark_suite": "eval/bench.yaml", "holdout_suite": "eval/bench.yaml"}
    config, fates = migrated(tmp_path, rlm=same)
    assert (config.evaluate.benchmark, config.evaluate.holdout) == ("bank:benchmark", "bank:holdout")
    assert "task 1: tests: are needed" in fates["rlm.benchmark_suite"].text
    assert str(tmp_path / "eval" / "bench.yaml") in fates["rlm.benchmark_suite"].text
    assert "must differ" in fates["rlm.holdout_suite"].text
    _, fates = migrated(tmp_path, rlm={"benchmark_suite": "eval/nothing.yaml"})
    assert "is not there" in fates["rlm.benchmark_suite"].text


def test_a_model_that_is_an_adapter_becomes_base_and_adapter(tmp_path: Path) -> None:
    adapter = tmp_path / "runs" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapters.safetensors").touch()
    (adapter / "adapter_metadata.json").write_text('{"base_model": "some/base"}')
    config, _ = migrated(tmp_path, model={"id": "runs/adapter"})
    assert (config.model.base, config.model.adapter) == ("some/base", str(adapter))


def test_a_model_without_a_name_leaves_the_default(tmp_path: Path) -> None:
    config, fates = migrated(tmp_path, model={"id": None})
    assert config.model == Config().model
    assert fates["model.id"].word == "dropped"


def test_toml_is_read_too(tmp_path: Path) -> None:
    source = tmp_path / "mlxsmith.toml"
    source.write_text("[train]\nlr = 5e-5\n")
    assert "learning_rate: 5.0e-05" in migrate(source).files["rlm.yaml"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("train: {lr: fast}", "train.lr = 'fast': must be a number"),
        ("lora: {num_layers: .inf}", "lora.num_layers = inf: must be a number"),
        ("lora: {target_modules: q_proj}", "lora.target_modules"),
        ("lora: {target_modules: [[]]}", "lora.target_modules"),
        ("rlm: {task_domains: null}", "rlm.task_domains"),
        ("train: 3", "no config of mlxsmith"),
        ("{", "cannot be read"),
    ],
)
def test_a_file_that_is_no_such_config_is_refused_and_nothing_is_written(
    rlm: Rlm, tmp_path: Path, text: str, part: str
) -> None:
    (tmp_path / "mlxsmith.yaml").write_text(text)
    assert_refused(rlm("init", "new", "--from", "mlxsmith.yaml"), 2, "mlxsmith.yaml", part)
    assert not (tmp_path / "new").exists()
