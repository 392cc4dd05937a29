"""Where training goes on from: arrays and what is told of them in one file, which holds the digest of both.

safetensors has no checksum: of a flipped bit in it nobody would know.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from rlm_core.model.tensors import write_tensors

_DIGEST = "content"
"""What the digest is called among the information."""


def write_checkpoint(path: Path, arrays: Mapping[str, mx.array], information: Mapping[str, str]) -> None:
    """Write a checkpoint, whole or not at all.

    Raises:
        StageFailed: the disk is full or not writable.
    """
    write_tensors(path, arrays, {**information, _DIGEST: _digest_of(arrays, information)})


def read_checkpoint(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Arrays and information of a checkpoint.

    Raises:
        OSError, RuntimeError, ValueError: it cannot be read, or is not as it was written.
    """
    loaded: Any = mx.load(str(path), return_metadata=True)
    arrays, information = loaded
    content = information.pop(_DIGEST, None)
    if content != _digest_of(arrays, information):
        raise ValueError("its content is not what was written")
    return arrays, information


def _digest_of(arrays: Mapping[str, mx.array], information: Mapping[str, str]) -> str:
    """SHA-256 of a checkpoint's names, shapes and bytes, whatever their order in the file."""
    made = hashlib.sha256(json.dumps(dict(information), sort_keys=True).encode())
    for name, value in sorted(arrays.items()):
        made.update(f"{name} {value.dtype} {value.shape}".encode())
        made.update(np.asarray(value.reshape(-1).view(mx.uint8)).data)
    return made.hexdigest()
