"""An adapter of the tiny model that was not trained and changes what it says."""

from pathlib import Path

import mlx.core as mx

from rlm_core.config import AdapterSection
from rlm_core.model.policy import Policy
from rlm_core.records import AdapterRef

LORA = AdapterSection(rank=4, scale=3.0, modules=("self_attn.q_proj", "mlp.down_proj"))


def trained_adapter(policy: Policy, directory: Path) -> AdapterRef:
    """An adapter whose output is not zero."""
    policy.add_adapter(LORA, seed=1)
    mx.random.seed(5)
    noise = [(name, 0.05 * mx.random.normal(value.shape)) for name, value in policy.trainable().items()]
    policy.model.load_weights(noise, strict=False)
    return policy.save_adapter(directory, {"iteration": 3, "run": "r", "source_adapter": None})
