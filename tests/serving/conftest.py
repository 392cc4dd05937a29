"""A project with adapters that answer differently, and a server of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
import pytest

from rlm_core.config import AdapterSection, Config
from rlm_core.config_file import parse_config
from rlm_core.model.base_model import fingerprint
from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef, GateDecision, Outcome, SuiteComparison
from rlm_core.serving.server import InferenceServer
from rlm_core.state.ledger import Base, open_ledger
from rlm_core.state.project import Project
from tests.samples.serving import address_of, serving

SHAPE = AdapterSection(rank=2, scale=4.0, modules=("mlp.down_proj",))


@pytest.fixture(scope="session")
def adapters(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterRef]:
    """Eleven of the same shape, whose weights are random and so far apart."""
    policy = load_policy(str(tiny_model))
    policy.add_adapter(SHAPE, seed=0)
    directory = tmp_path_factory.mktemp("adapters")
    made = []
    for number in range(11):
        mx.random.seed(number)
        names = [name for name in policy.trainable() if name.endswith("lora_b")]
        policy.model.load_weights(
            [(name, 0.4 * mx.random.normal(policy.trainable()[name].shape)) for name in names], strict=False
        )
        made.append(policy.save_adapter(directory / str(number), {}))
    return made


_SCORE = SuiteComparison(
    suite="s",
    suite_digest="d",
    incumbent=0.2,
    candidate=0.5,
    difference=0.3,
    interval=(0, 1),
    p_value=0.01,
    better=1,
    worse=0,
)


@dataclass
class ServedProject:
    """A project whose gate is played by the test, and servers of it."""

    config: Config
    adapters: list[AdapterRef]
    decided: int = field(default=0)

    @property
    def ledger(self) -> Path:
        return Project(Path(self.config.project)).ledger

    def begin(self) -> None:
        base = self.config.model.base
        with open_ledger(self.ledger) as ledger:
            ledger.begin(Base(name=base, fingerprint=fingerprint(Path(base))), None)

    def decide(self, outcome: Outcome, staleness: int = 0) -> AdapterRef:
        """An iteration whose candidate is the next adapter."""
        candidate = self.adapters[self.decided]
        self.decided += 1
        with open_ledger(self.ledger) as ledger:
            lineage = ledger.lineage()
            decision = GateDecision(
                iteration=self.decided,
                outcome=outcome,
                rule="paired",
                reason="because",
                benchmark=_SCORE,
                holdout=_SCORE,
                candidate=candidate,
                incumbent=lineage.incumbent,
                learner=lineage.learner,
            )
            ledger.commit(decision, 0.3, [], {}, infer_staleness=staleness)
        return candidate

    @contextmanager
    def running(self, token: str | None = None, **section: Any) -> Iterator["Running"]:
        config = self.config.model_copy(update={"serve": self.config.serve.model_copy(update=section)})
        with serving(config, token) as server:
            yield Running(server)


@dataclass
class Running:
    """A server that answers."""

    server: InferenceServer

    @property
    def url(self) -> str:
        return address_of(self.server)

    def post(self, path: str, **content: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/{path}", json=content, timeout=60)


def new_project(base: Path, adapters: list[AdapterRef], directory: Path) -> ServedProject:
    project = ServedProject(parse_config({"project": str(directory), "model": {"base": str(base)}}), adapters)
    project.begin()
    return project


@pytest.fixture
def served(tiny_model: Path, adapters: list[AdapterRef], tmp_path: Path) -> ServedProject:
    """A project that was just begun."""
    return new_project(tiny_model, adapters, tmp_path / "project")
