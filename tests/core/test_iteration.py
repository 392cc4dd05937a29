"""What an iteration begins with: a project in which nothing is left of what was killed before."""

import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from rlm_core.config import AdapterSection, Config
from rlm_core.config_file import load_config
from rlm_core.errors import AdapterError, ConfigError, ModelError, ProblemError
from rlm_core.files import write_json, write_text
from rlm_core.iteration import begin, check
from rlm_core.model.adapters import WEIGHTS, write_adapter_config
from rlm_core.model.tensors import write_tensors
from rlm_core.problems import Problem
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from tests import tiny
from tests.command import Settings, write
from tests.samples.ledger import adapter, decision


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-5])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"no weights at all " * 100)


def without_arrays(path: Path) -> None:
    path.write_bytes((2).to_bytes(8, "little") + b"{}")


Harm = Callable[[Path], None]
HARMS: list[tuple[Harm, str]] = [
    (cut, r"cannot be loaded: its arrays take \d+ bytes and it has \d+"),
    (longer, r"cannot be loaded: its arrays take \d+ bytes and it has \d+"),
    (emptied, "cannot be loaded: it is no safetensors file"),
    (garbage, "cannot be loaded: it is no safetensors file"),
    (without_arrays, "cannot be loaded: it is no safetensors file"),
]


@pytest.fixture
def config(settings: Settings, tmp_path: Path) -> Config:
    return load_config(Path(write(tmp_path, settings)))


@pytest.fixture
def project(config: Config) -> Project:
    return Project(Path(config.project))


@pytest.mark.parametrize(("harm", "said"), [*HARMS, (Path.unlink, r"holds no model\*\.safetensors")])
def test_a_project_is_not_bound_to_a_base_whose_weights_cannot_be_loaded(
    settings: Settings, tmp_path: Path, tiny_model: Path, harm: Harm, said: str
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = load_config(Path(write(tmp_path, {**settings, "model": {"base": str(base)}})))
    harm(base / "model.safetensors")
    with pytest.raises(ModelError, match=f"{base}.* {said}"):
        begin(config)
    assert not Project(Path(config.project)).root.exists()
    shutil.copy(tiny_model / "model.safetensors", base)
    assert begin(config).number == 1


def test_weights_that_the_bases_index_names_must_be_there(settings: Settings, tmp_path: Path, tiny_model: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    write_json(base / "model.safetensors.index.json", {"weight_map": {"a": "model-2.safetensors"}})
    config = load_config(Path(write(tmp_path, {**settings, "model": {"base": str(base)}})))
    with pytest.raises(ModelError, match=r"model-2\.safetensors cannot be loaded: No such file"):
        begin(config)


@pytest.mark.parametrize(("harm", "said"), [*HARMS, (Path.unlink, r"is no adapter: adapters\.safetensors is missing")])
def test_a_project_is_not_bound_to_a_first_adapter_whose_weights_cannot_be_loaded(
    settings: Settings, tmp_path: Path, tiny_model: Path, harm: Harm, said: str
) -> None:
    adapter = tmp_path / "adapter"
    write_adapter_config(adapter, str(tiny_model), AdapterSection(), 0, {})
    write_tensors(adapter / WEIGHTS, {"a": mx.ones(3)})
    model: dict[str, object] = {"base": str(tiny_model), "adapter": str(adapter)}
    config = load_config(Path(write(tmp_path, {**settings, "model": model})))
    check(config)
    harm(adapter / WEIGHTS)
    with pytest.raises(AdapterError, match=f"{adapter}.* {said}"):
        begin(config)
    assert not Project(Path(config.project)).root.exists()


def test_the_checkpoint_of_an_iteration_that_has_ended_goes_and_the_own_one_stays(
    config: Config, project: Project
) -> None:
    own, other = (write_text(project.run(number) / "checkpoint.safetensors", "") for number in (1, 2))
    assert begin(config).number == 1
    assert own.exists()
    assert not other.exists()


def test_a_backup_that_was_not_made_is_made_up_for(config: Config, project: Project) -> None:
    begin(config)
    with open_ledger(project.ledger) as ledger:
        ledger.commit(decision(1, accepted=True), 0.3, [], {})
    assert not project.ledger_backup.exists()
    with pytest.raises(AdapterError, match="runs/0001/adapter"):  # this accept has none
        begin(config)
    with open_ledger(project.ledger_backup, create=False) as ledger:
        assert ledger.incumbent() == adapter(1)


def test_servers_token_that_is_not_there_is_missed_before_the_work(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = {"engine": "server", "servers": ["http://127.0.0.1:9"], "server_token_env": "RLM_TEST_TOKEN"}
    config = load_config(Path(write(tmp_path, {**settings, "rollout": {**settings.get("rollout", {}), **asking}})))
    monkeypatch.delenv("RLM_TEST_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="'RLM_TEST_TOKEN': this environment variable is not set"):
        begin(config)
    assert not Project(Path(config.project)).root.exists()
    monkeypatch.setenv("RLM_TEST_TOKEN", "secret")
    assert begin(config).number == 1


def test_a_wrong_reference_ends_a_run_beforehand_only_where_it_will_not_be_refused_by_itself(
    settings: Settings, tmp_path: Path
) -> None:
    """In an exam, or in a bank that is trusted. In a bank that is proved it costs that problem alone."""
    tests = "from main import f\n\ndef test_f():\n    assert f(1) == 3\n"
    wrong = {"prompt": "Add 2.", "verifier": {"kind": "pytest", "tests": tests}, "reference": tiny.answer(3)}
    path = tiny.write_problems(tmp_path / "wrong.jsonl", [Problem.model_validate(wrong)])

    def checked(section: str, **changed: object) -> None:
        check(load_config(Path(write(tmp_path, {**settings, section: {**settings[section], **changed}}))))

    checked("generate", bank=path)
    for section, changed in (("generate", {"bank": path, "prove_bank": False}), ("evaluate", {"holdout": path})):
        with pytest.raises(ProblemError, match="its reference does not pass its own tests"):
            checked(section, **changed)
