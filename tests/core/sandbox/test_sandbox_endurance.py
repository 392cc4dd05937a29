"""Hundreds of answers of every kind, in both modes and two threads: every verdict right, and nothing left of them."""

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlm_core.problems import Problem
from rlm_core.sandbox import open_sandbox
from rlm_core.verifiers import Answer, Bench, judge

from .conftest import SHORT, needs_landlock, processes_of_session, wait_until
from .test_sandbox_adversarial import TESTED
from .test_sandbox_lifecycle import open_descriptors

ANSWERS = {
    "import math\nsolve = math.factorial\n": "passed",
    "def solve(n):\n    print('busy')\n    return 1 if n < 2 else n * solve(n - 1)\n": "passed",
    "def solve(n): return 1\n": "failed",
    "def solve(n): raise ValueError(n)\n": "failed",
    "def solve(n) return n\n": "failed",
    "import os\ndef solve(n): os._exit(0)\n": "failed",
    "import ctypes\ndef solve(n): ctypes.string_at(0)\n": "failed",
    "import os\ndef solve(n): os.write(3, b'\\0\\0\\0\\4null')\n": "failed",
    "import threading as t\ndef solve(n):\n    t.Thread(target=t.Event().wait).start()\n    return -1\n": "failed",
    "def solve(n): return open('/etc/passwd').read()\n": "failed",
}
ONE_IN = 10
"""Every so many answers are judged by tests, the others by cases."""
FOR_EVER = "def solve(n):\n    while True: pass\n"


def judge_many(problems: Sequence[Problem], count: int) -> tuple[Counter[str], set[int]]:
    """Judge so many answers in one sandbox; how many verdicts were wrong, by answer, and its zygotes' sessions."""
    wrong: Counter[str] = Counter()
    with open_sandbox(limits=SHORT) as sandbox:
        bench = Bench(sandbox)
        for index in range(count):
            code, status = list(ANSWERS.items())[index % len(ANSWERS)]
            problem = problems[index // len(ANSWERS) % ONE_IN == 0]
            wrong[code] += judge(Answer(code, code), problem, bench).status != status
        wrong[FOR_EVER] += judge(Answer(FOR_EVER, FOR_EVER), problems[0], bench).status != "failed"
        sessions = {sandbox._zygotes.code.pid, sandbox._zygotes.tests.pid}
        assert all(len(processes_of_session(session)) <= 3 for session in sessions), "a child is left"
    return wrong, sessions


def children_of_this_process() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def judge_in_two_threads(count: int, problem: Problem, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many answers in each thread get the verdicts that they must, and nothing is left of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    descriptors, children = open_descriptors(), children_of_this_process()
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: judge_many((problem, TESTED), count), range(2)))
    assert sum((wrong for wrong, _ in results), Counter()) == Counter()
    assert open_descriptors() == descriptors
    assert children_of_this_process() == children
    assert list(directory.iterdir()) == []
    for _, sessions in results:
        for session in sessions:
            assert wait_until(lambda session=session: not processes_of_session(session))  # type: ignore[misc]


@needs_landlock
def test_hundreds_of_answers_in_two_threads(
    factorial: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_in_two_threads(120, factorial, tmp_path, monkeypatch)
