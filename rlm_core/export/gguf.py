"""GGUF, the format of llama.cpp, where mlx-lm writes it and the tokenizer survives it.

mlx-lm's writer takes every tokenizer for one of SentencePiece. A byte-level one, as most models have today, would come
out as another tokenizer without a word. The default model's was read from a GGUF file, so what that one says about it
is put in place; others are refused.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.gguf import convert_to_gguf

from rlm_core.config import DEFAULT_MODEL
from rlm_core.errors import UsageError
from rlm_core.model.base_model import base_path
from rlm_core.model.default_model import fetch_gguf

ARCHITECTURES = ("llama", "mistral", "mixtral")
"""Those that mlx-lm's writer knows."""
_OTHERWISE = "llama.cpp's convert_hf_to_gguf.py makes one of the exported directory"


def check_gguf(base: str) -> None:
    """Refuse what cannot be written truthfully, before any work is done.

    Raises:
        UsageError: with another way to the file.
    """
    path = base_path(base)
    kind = json.loads((path / "config.json").read_text()).get("model_type")
    if kind not in ARCHITECTURES:
        raise UsageError(f"--gguf: models of type {kind!r} cannot be written as GGUF here; {_OTHERWISE}")
    if base != DEFAULT_MODEL and not _is_sentencepiece(path):
        raise UsageError(f"--gguf: the tokenizer of {base!r} would not come out right; {_OTHERWISE}")


def _is_sentencepiece(path: Path) -> bool:
    try:
        return bool(json.loads((path / "tokenizer.json").read_text())["model"]["byte_fallback"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_gguf(model: Path, target: Path, base: str) -> None:
    """Write an exported model as one GGUF file, its matrices in the type that they have.

    Args:
        model: its directory.
        base: what it was made of.
    """
    weights: Any = {}
    for shard in sorted(model.glob("model*.safetensors")):
        weights |= mx.load(str(shard))
    config = json.loads((model / "config.json").read_text())
    convert_to_gguf(model, weights, config, str(target))
    if base == DEFAULT_MODEL:
        written: Any = mx.load(str(target), return_metadata=True)
        source: Any = mx.load(str(fetch_gguf()), return_metadata=True)
        tokenizer = {name: value for name, value in source[1].items() if name.startswith("tokenizer.")}
        kept = {name: value for name, value in written[1].items() if not name.startswith("tokenizer.")}
        whole = target.with_name(f"whole-{target.name}")  # what was loaded may still be read from the file
        mx.save_gguf(str(whole), written[0], kept | tokenizer)
        whole.replace(target)
