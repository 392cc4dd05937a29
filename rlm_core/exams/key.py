"""What an exam's report depends on: when all of it is the same, the report is not made again."""

import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rlm_core
from rlm_core.exams.exam import Exam
from rlm_core.files import digest
from rlm_core.problems import Pytest, parts
from rlm_core.records import Examinee, PolicyRef, Recited
from rlm_core.verifiers.function import sources

_SAMPLING = ("mlx", "mlx-lm", "numpy", "tokenizers")
"""Decide which tokens are drawn."""
_JUDGING = ("pytest", "regex", "jsonschema", "reasoning-gym")
"""Decide, with Python itself, which answers are right."""


def exam_key(examinee: Examinee, exam: Exam) -> str:
    """Names all that an exam's report depends on; reports with equal keys are equal but for the time they took."""
    evaluate, rollout, verify = exam.evaluate, exam.rollout, exam.verify
    who = [examinee.name, examinee.fingerprint if isinstance(examinee, PolicyRef) else None]
    settings: list[Any] = [evaluate.samples, evaluate.temperature, evaluate.top_p, evaluate.max_tokens]
    settings += [rollout.prompt_suffix, rollout.stop_after_code]
    settings += [verify.sandbox, verify.limits.model_dump(mode="json"), sources(verify.functions)]
    if verify.sandbox == "docker":  # its image says which packages an answer can use
        settings.append(verify.container.model_dump(mode="json"))
    return digest(code_version(), who, exam.suite.digest, _solutions(examinee, exam), exam.seed, settings)


def _solutions(examinee: Examinee, exam: Exam) -> list[list[str | None]]:
    """Those that decide an answer or its verdict, which a problem's id does not tell: what is recited, and what stands
    in for the answer's own names in a problem's tests."""
    recited = isinstance(examinee, Recited) and examinee.recites == "reference"
    return [
        [problem.id, problem.reference]
        for problem in sorted(exam.suite.problems, key=lambda problem: problem.id)
        if recited or any(isinstance(part, Pytest) for part in parts(problem.verifier))
    ]


@cache
def code_version() -> str:
    """Content hash of this package's source, and the versions of Python and the libraries that a report depends on."""
    root = Path(rlm_core.__file__).parent
    files = {file.relative_to(root).as_posix(): file for file in sorted(root.rglob("*.py"))}
    sums = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    return digest(sums, sys.version_info[:2], {name: _version(name) for name in (*_SAMPLING, *_JUDGING)})


def _version(library: str) -> str | None:
    """None of one that is not installed; the extras bring some of them."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None
