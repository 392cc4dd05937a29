"""The files of a stage that makes problems: those that it made, and what it rejected."""

from collections.abc import Sequence
from pathlib import Path

from rlm_core.files import write_jsonl
from rlm_core.problems import Problem
from rlm_core.records import FileRef, Rejection, StageResult
from rlm_core.state.run import Made, Run


def written(
    directory: Path, name: Made, problems: Sequence[Problem], rejections: Sequence[Rejection], **figures: int
) -> StageResult:
    """The result of a stage that makes problems: two files, how many are in each, and what else is to be told."""
    run = Run(directory)
    kept = write_jsonl(run.made(name), problems)
    refused = write_jsonl(run.rejections(name), rejections)
    return StageResult(
        files={"problems": FileRef.of(kept), "rejections": FileRef.of(refused)},
        figures={"problems": len(problems), "rejections": len(rejections), **figures},
    )
