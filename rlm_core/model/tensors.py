"""Arrays by their names, and on disk, whole or absent like all other files."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from rlm_core.errors import one_line
from rlm_core.files import write_atomic


def flat(tree: Any) -> dict[str, mx.array]:
    """The arrays of a model's parameters, a gradient or an optimizer's state by their dotted names."""
    return dict(tree_flatten(tree))


def read_tensors(path: Path) -> dict[str, mx.array]:
    """The arrays of a safetensors file by their names.

    Raises:
        FileNotFoundError, RuntimeError, ValueError: as MLX says that it is missing or damaged.
    """
    loaded: Any = mx.load(str(path))
    return dict(loaded)


def damage_of(path: Path) -> str | None:
    """What is wrong with a safetensors file as far as header and length tell, without reading gigabytes; or None."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: Any = json.loads(file.read(length)) if length <= size - 8 else None
        content = size - 8 - length
        end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    except OSError as error:
        return error.strerror or str(error)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return "it is no safetensors file, or a part of one"
    return None if end == content else f"its arrays take {end} bytes and it has {content}"


def write_tensors(path: Path, arrays: Mapping[str, mx.array], information: Mapping[str, str] | None = None) -> Path:
    """Write arrays as safetensors to `path` atomically.

    Raises:
        StageFailed: the disk is full or not writable.
    """

    def write(temporary: Path) -> None:
        try:
            mx.save_safetensors(str(temporary), dict(arrays), dict(information or {}))
        except RuntimeError as error:  # in the place of an OSError, without saying which
            raise OSError(errno.EIO, one_line(error)) from error

    return write_atomic(path, write)
