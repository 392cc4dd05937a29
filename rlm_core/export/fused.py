"""A fused model's directory: the weights, and all that its base has beside its own."""

import json
import shutil
from pathlib import Path

from rlm_core.errors import StageFailed
from rlm_core.files import write_json
from rlm_core.model.policy import Policy

_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*", "NOTICE*")
_OF_THE_WEIGHTS = {"config.json", "model.safetensors.index.json", "manifest.json"}
_QUANTISATION = ("quantization", "quantization_config")


def write_fused(policy: Policy, base: Path, directory: Path) -> None:
    """Write a policy as a model without an adapter, in Hugging Face's layout. The policy cannot be trained after that.

    Args:
        base: where its base model is.
        directory: is made.

    Raises:
        StageFailed: it cannot be written.
    """
    try:
        directory.mkdir(parents=True)
        policy.save_fused(directory)
        for pattern in _BESIDE:
            for file in base.glob(pattern):
                if file.name not in _OF_THE_WEIGHTS:
                    shutil.copyfile(file, directory / file.name)
        config = json.loads((base / "config.json").read_text())
        kept = {name: value for name, value in config.items() if name not in _QUANTISATION}
        write_json(directory / "config.json", kept | {"torch_dtype": str(policy.dtype).removeprefix("mlx.core.")})
    except OSError as error:
        raise StageFailed(f"cannot write {directory}: {error.strerror or error}") from error
