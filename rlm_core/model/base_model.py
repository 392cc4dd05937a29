"""Base models on disk: where one is, and which one it is."""

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlm_core.config import DEFAULT_MODEL
from rlm_core.errors import ModelError, one_line
from rlm_core.files import FileState, digest, state_of
from rlm_core.model.default_model import fetch_default_model
from rlm_core.model.tensors import damage_of

_HUB_FILES = ["*.json", "model*.safetensors", "*.model", "*.jinja"]
"""What mlx-lm needs of a model on the hub."""

_NUMBER_OF_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
"""What models' configs call it."""


def base_path(base: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The local directory of a base model: the default model (fetched if need be), a directory, or a hub id.

    Raises:
        ModelError: there is no such directory and no such model in the hub's cache or on the hub.
    """
    if base == DEFAULT_MODEL:
        return fetch_default_model(say)
    path = Path(base).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"model.base = {base!r}: the directory holds no config.json, so it is no model")
        return path
    if path.is_absolute() or base.startswith((".", "~")) or base.count("/") != 1:
        raise ModelError(f"model.base = {base!r}: no such directory; use {DEFAULT_MODEL!r}, a directory or a hub id")
    return _from_hub(base)


def _from_hub(base: str) -> Path:
    """The hub's copy of a model in its local cache, fetched when it is not there."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(base, allow_patterns=_HUB_FILES, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or not all of it
        pass
    try:
        return Path(snapshot_download(base, allow_patterns=_HUB_FILES))
    except Exception as error:
        reason = one_line(error, 160)
        raise ModelError(f"model.base = {base!r}: not a local directory and not on the hub: {reason}") from error


def check_base_weights(path: Path) -> None:
    """Refuse a base model whose weights are not all there or cannot be loaded, before a project is bound to it.

    Raises:
        ModelError: naming the file and what is wrong with it.
    """
    index = path / "model.safetensors.index.json"
    named = _section(_read(index), "weight_map").values() if index.is_file() else ()
    weights = {*path.glob("model*.safetensors"), *(path / str(name) for name in named)}
    if not weights:
        raise ModelError(f"{path} holds no model*.safetensors, so it is no whole model")
    for file in sorted(weights):
        if damage := damage_of(file):
            raise ModelError(f"{file} cannot be loaded: {damage}")


def fingerprint(path: Path) -> str:
    """Tells base models apart without reading gigabytes: the config, and size, head and tail of each weight file.

    They are read once a process, and again when one was written since.
    """
    files = (path / "config.json", *sorted(path.glob("model*.safetensors")))
    return _fingerprint(files, tuple(map(state_of, files)))


@lru_cache(maxsize=8)
def _fingerprint(files: tuple[Path, ...], _states: tuple[FileState, ...]) -> str:
    config, *weights = files
    parts: list[Any] = [_read(config)]
    for file in weights:
        size = file.stat().st_size
        with file.open("rb") as content:
            head = content.read(1 << 20)
            content.seek(max(0, size - (1 << 20)))
            parts.append([size, hashlib.sha256(head + content.read()).hexdigest()])
    return digest(*parts)


def number_of_layers(path: Path) -> int | None:
    """How many layers the model's config says that it has; None when it does not say."""
    content = _read(path / "config.json")
    content = {**_section(content, "text_config"), **content}
    return next((content[key] for key in _NUMBER_OF_LAYERS if isinstance(content.get(key), int)), None)


def quantisation_bits(path: Path) -> set[int]:
    """Bits per weight of the layers that the model's config calls quantised; empty when none is."""
    content = _section(_read(path / "config.json"), "quantization")
    return {part["bits"] for part in (content, *content.values()) if isinstance(part, dict) and "bits" in part}


def end_token_ids(path: Path, config: dict[str, Any]) -> list[int] | None:
    """All end tokens that the model's config and generation config name."""
    found: set[int] = set()
    generation = path / "generation_config.json"
    sources = [config, _read(generation) if generation.is_file() else {}]
    for source in sources:
        value = source.get("eos_token_id")
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return sorted(found) or None


def _read(path: Path) -> dict[str, Any]:
    """The content of a model's JSON file.

    Raises:
        ModelError: it is not one.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, not a {type(content).__name__}")
    return content


def _section(content: dict[str, Any], name: str) -> dict[str, Any]:
    section = content.get(name)
    return section if isinstance(section, dict) else {}
