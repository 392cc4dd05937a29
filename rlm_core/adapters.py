"""Adapters on disk, in mlx-lm's format, with a section of ours in their config that says where they come from."""

import json
from pathlib import Path
from typing import Any

from rlm_core.base_model import base_path, fingerprint
from rlm_core.config import LoraSection
from rlm_core.errors import AdapterError
from rlm_core.files import sha256_of, write_json
from rlm_core.records import AdapterRef

WEIGHTS = "adapters.safetensors"
CONFIG = "adapter_config.json"


def read_adapter(directory: str | Path) -> AdapterRef:
    """An adapter directory as a record.

    Raises:
        AdapterError: a file is missing.
    """
    directory = Path(directory).expanduser().absolute()
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise AdapterError(f"{directory} is no adapter: {name} is missing")
    return AdapterRef(path=str(directory), sha256=sha256_of(directory / WEIGHTS))


def check_adapter(base: str, adapter: AdapterRef) -> None:
    """Refuse an adapter that is damaged or was made for another base.

    Raises:
        AdapterError: naming both bases, or both digests.
    """
    found = read_adapter(adapter.path)
    if found.sha256 != adapter.sha256:
        raise AdapterError(f"{adapter.path} is damaged: SHA-256 {found.sha256[:12]}…, recorded {adapter.sha256[:12]}…")
    made_for = read_adapter_config(adapter).get("rlm", {})
    known = made_for.get("base_fingerprint")
    if known is not None and known != fingerprint(base_path(base)):
        raise AdapterError(f"{adapter.path} was made for {made_for.get('base_model')!r}, not for {base!r}")


def read_adapter_config(adapter: AdapterRef) -> dict[str, Any]:
    path = Path(adapter.path, CONFIG)
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise AdapterError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise AdapterError(f"{path} is no adapter config")
    return config


def write_adapter_config(directory: Path, base: str, lora: LoraSection, layers: int, origin: dict[str, Any]) -> None:
    """Write the config beside an adapter's weights.

    Args:
        layers: how many of the model's layers are adapted, counted from the last.
        origin: source adapter, run, kind, iteration.
    """
    config = {
        "fine_tune_type": "lora",
        "num_layers": layers,
        "lora_parameters": lora_parameters(lora),
        "rlm": {"base_model": base, "base_fingerprint": fingerprint(base_path(base)), **origin},
    }
    write_json(directory / CONFIG, config)


def check_shape(adapter: AdapterRef, lora: LoraSection) -> None:
    """Refuse to train on from an adapter whose layers are not those that the config asks for.

    Raises:
        AdapterError: with both shapes.
    """
    found, wanted = read_adapter_config(adapter).get("lora_parameters", {}), lora_parameters(lora)
    shapes = [{key: shape.get(key) for key in ("rank", "scale", "keys")} for shape in (found, wanted)]
    if shapes[0] != shapes[1]:
        had, asked = (", ".join(f"{key} {value}" for key, value in shape.items()) for shape in shapes)
        raise AdapterError(f"{adapter.path} has {had}; train.lora asks for {asked}; change train.lora or the project")


def lora_parameters(lora: LoraSection) -> dict[str, Any]:
    """The adapter's shape in mlx-lm's words."""
    return {"rank": lora.rank, "scale": lora.scale, "dropout": 0.0, "keys": list(lora.modules)}
