"""When a stage's stored result is its result still: our cache policy for Prefect.

A result is a small JSON record in the iteration's own directory. Its name is a digest of all that the stage depends on:
the iteration, the stage and its version, the settings that it reads, and its inputs. Inputs count by the digests of
their files, never by where they are, so a project can be moved. A result that was altered, or whose files are gone or
altered, is no result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.results import ResultRecord
from pydantic_core import to_jsonable_python

from rlm_core.config import Config, Section
from rlm_core.errors import one_line
from rlm_core.files import digest, is_as_written
from rlm_core.records import FileRef, PolicyRef, StageResult

RESULTS = "results"
"""Directory of the results, in that of the iteration."""

_PLACES = {"directory", "project"}
"""Parameters that say where things are."""

_SECTIONS = {field.annotation: name for name, field in Config.model_fields.items()}


@dataclass
class StagePolicy(CachePolicy):
    """A stage's result is found again by whoever asks for the same work within the same iteration."""

    version: int = 1
    """Raised when the stage would give another result for the same parameters."""
    reads: Sequence[str] = ()
    """The settings that the stage reads of the sections that it is given: `section` or `section.setting`."""
    ignores: Sequence[str] = ()
    """Settings within them that it does not read."""

    def compute_key(self, task_ctx: TaskRunContext, inputs: dict[str, Any], *_: Any, **__: Any) -> str:
        """The file name of the result. Prefect asks for it before it looks, so what is damaged is put away here."""
        given = inputs["parameters"]
        name = self.result_name(task_ctx.task.name, inputs["files"], given)
        _discard_if_damaged(Path(given["directory"]), name)
        return name

    def result_name(self, stage: str, files: dict[str, str], given: dict[str, Any]) -> str:
        """The name of the result of a stage that is given these parameters.

        Args:
            files: digests of the problem files that the stage reads by name, and of the user's own functions.
        """
        sections = {_SECTIONS[type(value)]: value.dump() for value in given.values() if isinstance(value, Section)}
        inputs = {
            name: _identity(value)
            for name, value in given.items()
            if name not in _PLACES and not isinstance(value, Section)
        }
        iteration = Path(given["directory"]).name
        return f"{stage}-{digest(iteration, stage, self.version, files, self._settings(sections), inputs)}"

    def _settings(self, sections: dict[str, Any]) -> dict[str, Any]:
        for name in self.ignores:
            *path, last = name.split(".")
            del _at(sections, path)[last]
        return {name: _at(sections, name.split(".")) for name in self.reads}


def _at(content: Any, path: Sequence[str]) -> Any:
    for key in path:
        content = content[key]
    return content


def _identity(value: Any) -> Any:
    """What a parameter is, wherever its files are."""
    match value:
        case FileRef():
            return value.sha256
        case PolicyRef():
            return [value.fingerprint, value.name]
        case {"files": dict(files), "figures": _}:  # what a stage returned; its figures have times in them
            return {name: file["sha256"] for name, file in files.items()}
        case list() | tuple():
            return [_identity(item) for item in value]
    return to_jsonable_python(value)


def _discard_if_damaged(directory: Path, name: str) -> None:
    """Delete a stored result that is not what it was, or whose files are not, so that the stage runs again."""
    stored = directory / RESULTS / name
    if stored.is_file() and (reason := damage(directory, stored)) is not None:
        get_run_logger().warning("%s runs again: %s", name.rpartition("-")[0], reason)
        stored.unlink(missing_ok=True)


def damage(directory: Path, stored: Path) -> str | None:
    """Why a stored result of the iteration in this directory is none any more; None when it is one."""
    try:
        content = stored.read_bytes()
        if not is_as_written(content):
            return "its record is not what was written"
        return StageResult.model_validate(ResultRecord.deserialize(content).result).at(directory).damage()
    except Exception as error:  # of another version of ours or of Prefect's, which raises whatever it comes to
        return f"its record cannot be read: {one_line(error)}"
