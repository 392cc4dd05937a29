"""Arrays on disk, whole or absent like all other files."""

import errno
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

from rlm_core.errors import one_line
from rlm_core.files import write_atomic


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
