"""Files that are whole or absent: atomic writes, digests, JSON Lines."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlm_core.errors import StageFailed, UsageError
from rlm_core.scratch import PARTIAL, is_left_over, partial_suffix

RecordT = TypeVar("RecordT", bound=BaseModel)

_SEAL = b',"sha256":"'
"""What comes after a sealed record: one key more of the JSON object that it is."""


def write_atomic(path: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a temporary file beside `path`, flush it to disk and move it into place.

    A crash at any moment leaves the old file or the new one, never a part. The temporary file keeps `path`'s suffix
    because some writers (safetensors) choose the format by it.

    Raises:
        StageFailed: the disk is full or not writable.
    """
    temporary = None
    suffix = partial_suffix(path.suffix)
    try:
        _make_directory(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{PARTIAL}{path.stem}-", suffix=suffix)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        return move_into_place(temporary, path)
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def move_into_place(whole: Path, path: Path) -> Path:
    """Give a file that is whole and flushed the name `path`, in the same directory, in place of what has it.

    Raises:
        StageFailed: the disk is full or not writable.
    """
    try:
        whole.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise StageFailed(f"cannot write {path}: {error.strerror or error}") from error
    return path


def remove_partial_files(directory: Path) -> None:
    """Remove what writers that were killed have left below the directory. What others are writing there stays.

    Raises:
        StageFailed: one cannot be removed.
    """
    for path in files_below(directory):
        if path.name.startswith(PARTIAL) and is_left_over(path.name):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StageFailed(f"cannot remove {path}: {error.strerror}") from error


def files_below(directory: Path) -> Iterator[Path]:
    """The files in a directory in which others may be at work: what goes meanwhile is no error."""
    for place, _, names in os.walk(directory):
        yield from (Path(place, name) for name in names)


def write_bytes(path: Path, content: bytes) -> Path:
    """Write `content` to `path` atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    return write_atomic(path, write)


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` atomically, as UTF-8."""
    return write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> Path:
    """Write `value` to `path` atomically, indented, with sorted keys."""
    return write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_record(path: Path, record: BaseModel) -> Path:
    """Write one record to `path` atomically, as indented JSON."""
    return write_text(path, record.model_dump_json(indent=2) + "\n")


def write_jsonl(path: Path, records: Iterable[BaseModel]) -> Path:
    """Write one record per line to `path` atomically."""
    return write_text(path, "".join(record.model_dump_json() + "\n" for record in records))


def read_record(path: Path, kind: type[RecordT]) -> RecordT:
    """Read one JSON record.

    Raises:
        StageFailed: the file is missing or is not such a record.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise StageFailed(f"{path} is not a readable {kind.__name__}: {first_reason(error)}") from error


def write_sealed(path: Path, record: BaseModel) -> Path:
    """Write one record to `path` atomically, as JSON with a digest of its own."""
    return write_bytes(path, sealed(record.model_dump_json().encode()))


def read_sealed(path: Path, kind: type[RecordT]) -> RecordT | None:
    """Read what `write_sealed` wrote; None where there is nothing, it was cut or altered since, or it is a record of
    another kind, as another version may have written it."""
    try:
        content = path.read_bytes()
        return kind.model_validate_json(unsealed(content)) if is_as_written(content) else None
    except (OSError, ValidationError):
        return None


def sealed(content: bytes) -> bytes:
    """The JSON object with the SHA-256 of its bytes as one key more."""
    assert content.endswith(b"}")
    return content[:-1] + _SEAL + hashlib.sha256(content).hexdigest().encode() + b'"}'


def unsealed(content: bytes) -> bytes:
    """What `sealed` was given, if it gave this."""
    return content.rpartition(_SEAL)[0] + b"}"


def is_as_written(content: bytes) -> bool:
    """Whether this is what `sealed` gave, to the last bit."""
    return content == sealed(unsealed(content))


def read_jsonl(path: Path, kind: type[RecordT]) -> Iterator[RecordT]:
    """Yield the records of a JSON Lines file.

    Raises:
        StageFailed: the file is missing, or a line is not such a record (the message names the line).
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise StageFailed(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(lines, 1):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            raise StageFailed(f"{path}:{number} is not a readable {kind.__name__}: {first_reason(error)}") from error


def read_shards(directory: Path, kind: type[RecordT]) -> list[RecordT]:
    """The records of all JSON Lines files in a directory, in the order of the files' names; none where it is not there.

    Raises:
        StageFailed: a line is not such a record.
    """
    return [record for shard in sorted(directory.glob("*.jsonl")) for record in read_jsonl(shard, kind)]


def first_reason(error: Exception) -> str:
    """The first complaint of a validation error as `place: reason`, or the error's own text."""
    if isinstance(error, ValidationError):
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "value_error":  # a check of ours; one of the record as a whole names the place itself
            return ": ".join(filter(None, (place, detail["msg"].removeprefix("Value error, "))))
        return f"{place or 'record'}: {detail['msg']}"
    return str(error)


def read_given_text(path: Path, name: str, error_type: type[UsageError]) -> str:
    """The text of a file that a person named.

    Raises:
        UsageError: of the given type, naming the file by `name`, when it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise error_type(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise error_type(f"{name}: is not UTF-8 text") from error
    except ValueError as error:  # a name that no file can have
        raise error_type(f"{name!r}: cannot be read: {error}") from error


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FileState = tuple[int, ...]


def state_of(path: Path) -> FileState:
    """What the file system tells of a file without reading it; another one when the file was written since."""
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def sha256_if_written(path: Path) -> str:
    """Hex SHA-256 of a large file that is looked at often: read again only when it was written since."""
    return _sha256_in(path, state_of(path))


@lru_cache(maxsize=64)
def _sha256_in(path: Path, _state: FileState) -> str:
    return sha256_of(path)


def digest(*parts: Any) -> str:
    """Hex SHA-256 (first 16 digits) of JSON-able values: the content hash that ids and cache keys are made of."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it that are missing, and make each one's own entry durable."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make a rename durable: the directory's own entry has to reach the disk too."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
