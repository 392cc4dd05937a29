"""Where Prefect keeps a stage's result: a file that is whole or absent, and shows whether it is as it was written.

Prefect's own storage opens the file and writes into it. What a kill leaves there is half a record, and one that was
altered since, but is a record still, would be believed. Prefect does not look at the key that the seal adds.
"""

from typing import Any

from prefect.filesystems import LocalFileSystem

from rlm_core.files import sealed, write_bytes


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
