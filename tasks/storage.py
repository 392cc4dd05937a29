"""Where Prefect keeps a stage's result: a file that is whole or absent, and shows whether it is as it was written.

Prefect's own storage opens the file and writes into it. What a kill leaves there is half a record, and one that was
altered since, but is a record still, would be believed.
"""

import hashlib
from typing import Any

from prefect.filesystems import LocalFileSystem

from rlm_core.files import write_bytes

_SEAL = b',"sha256":"'
"""What comes after the record: one key more, which Prefect does not look at, of the JSON object that it is."""


class ResultFiles(LocalFileSystem):
    """Results in a local directory, each written at once or not at all, with a digest of its own."""

    _block_type_name = "Stage Results"  # Prefect tells classes apart by it

    def write_path(self, path: str, content: bytes, **_: Any) -> str:  # type: ignore[override]  # never a coroutine
        """Write a result, a JSON object.

        Raises:
            StageFailed: the disk is full or not writable.
        """
        return str(write_bytes(self._resolve_path(path), sealed(content)))

    async def awrite_path(self, path: str, content: bytes) -> str:
        return self.write_path(path, content)


def sealed(content: bytes) -> bytes:
    """The JSON object with the SHA-256 of its bytes as one key more."""
    assert content.endswith(b"}")
    return content[:-1] + _SEAL + hashlib.sha256(content).hexdigest().encode() + b'"}'


def is_as_written(content: bytes) -> bool:
    """Whether this is what `sealed` gave, to the last bit."""
    return content == sealed(content.rpartition(_SEAL)[0] + b"}")
