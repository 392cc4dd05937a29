"""Training of the tiny model on judged rollouts."""

from pathlib import Path
from typing import Any

import numpy as np

from rlm_core.config import AdapterSection, TrainSection
from rlm_core.model.tensors import read_tensors
from rlm_core.records import AdapterRef, TrainReport
from rlm_core.train import train
from tests.core.conftest import ROLLOUT, Judged

LORA = AdapterSection(rank=4, scale=4.0, modules=("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"))
SECTION = TrainSection(learning_rate=2e-3, minibatch=12, micro_batch=4, adapter=LORA)


def train_here(
    judged: Judged, model: Path, directory: Path, learner: AdapterRef | None = None, **changes: Any
) -> TrainReport:
    section = SECTION.model_copy(update=changes)
    origin = {"iteration": 1}
    return train(str(model), learner, judged.rollouts, judged.verdicts, section, ROLLOUT, 3, directory, origin)


def weights(adapter: AdapterRef | None) -> dict[str, np.ndarray]:
    assert adapter is not None
    return {name: np.array(value) for name, value in read_tensors(Path(adapter.path, "adapters.safetensors")).items()}
