"""Optional packages: that one is missing is found out before any work, in one line that says what to install."""

import re
import socket
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import flows.extras
from flows.extras import require_runner
from rlm_core.config import PrefectSection
from rlm_core.errors import InfrastructureFault, UsageError
from tests.command import Rlm

ROOT = Path(__file__).parents[2]


def section(kind: str, cluster: str | None = None) -> PrefectSection:
    return PrefectSection.parse({"verify_runner": kind, "cluster": cluster})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages that are there; a test adds to them."""
    there: set[str] = set()
    monkeypatch.setattr(flows.extras, "find_spec", lambda name: ModuleSpec(name, None) if name in there else None)
    return there


def test_threads_need_nothing(installed: set[str]) -> None:
    assert installed == set()
    require_runner(section("threads"))


@pytest.mark.parametrize(
    ("kind", "there", "missing"),
    [
        ("dask", set(), "prefect-dask and distributed"),
        ("dask", {"distributed"}, "prefect-dask"),
        ("ray", {"prefect_dask", "distributed"}, "prefect-ray and ray"),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    installed: set[str], kind: str, there: set[str], missing: str
) -> None:
    installed |= there
    with pytest.raises(UsageError) as caught:
        require_runner(section(kind))
    command = f"pip install 'rlm-flows[{kind}]'"
    assert str(caught.value) == f"prefect.verify_runner: {kind} needs {missing}; install them: {command}"


def test_a_cluster_must_answer(installed: set[str]) -> None:
    installed |= {"prefect_dask", "distributed"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        require_runner(section("dask", address))
    with pytest.raises(InfrastructureFault, match=f"nothing answers at {address}"):
        require_runner(section("dask", address))


def test_a_run_with_a_missing_extra_ends_before_any_work(rlm: Rlm, installed: set[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("project: p\nprefect: {verify_runner: ray}\n")
    done = rlm("run", "--config", "config.yaml")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "pip install 'rlm-flows[ray]'" in done.err
    assert not (tmp_path / "p").exists()
    assert installed == set()


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"dask", "ray", "serve", "reasoning-gym", "trackers"} <= extras.keys()
    files = [path for kind in ("README.md", "docs/*.md", "*/**/*.py") for path in ROOT.glob(kind)]
    named = {name for path in files for name in re.findall(r"rlm-flows\[([a-z-]+)\]", path.read_text(errors="replace"))}
    assert len(named) > 3
    assert named <= extras.keys()
