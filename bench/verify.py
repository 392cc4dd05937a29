"""How many answers a second are judged: the sandbox's two modes against a fresh pytest process for each answer.

    make bench-verify

All sides judge the same answers to the same problem, in turns, with as many workers as there are processors. A fresh
process is the plain way: it writes the answer to main.py beside the tests, runs `python -m pytest -q`, and looks at the
exit code, without any sandbox. Much of its time goes into plugins that happen to be installed beside pytest; the same
without them is shown, too, and has no goal. Exits 1 when a goal is missed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from figures import Figure, finish, print_machine

from rlm_core.config import VerifySection
from rlm_core.judging import judge_rollouts, open_bench
from rlm_core.problems import Problem
from rlm_core.records import Rollout
from rlm_core.verifiers import prepare

BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Variables with which pytest loads no plugins but its own."""
WORKERS = os.cpu_count() or 1
CASES = ((0, 1), (5, 120), (7, 5040))
TESTS = "from main import solve\n"
TESTS += "".join(f"def test_{n}():\n    assert solve({n}) == {value}\n" for n, value in CASES)
ITERATIVE = "def solve(n):\n    r = 1\n    for i in range(2, n + 1):\n        r *= i\n    return r\n"
RECURSIVE = "def solve(n):\n    return 1 if n < 2 else n * solve(n - 1)\n"
WRONG = "def solve(n):\n    return n + 1\n"
ANSWERS = {ITERATIVE: True, RECURSIVE: True, WRONG: False}

BY_CASES = Problem.model_validate(
    {
        "prompt": "Write solve(n) that returns n!",
        "entry_point": "solve",
        "cases": [{"input": [n], "expected": value} for n, value in CASES],
        "reference": ITERATIVE,
    }
)
BY_TESTS = Problem.model_validate(
    {"prompt": BY_CASES.prompt, "verifier": {"kind": "pytest", "tests": TESTS}, "reference": ITERATIVE}
)


def answers(count: int) -> list[str]:
    """So many answers, right and wrong ones in turns."""
    return [list(ANSWERS)[index % len(ANSWERS)] for index in range(count)]


def in_fresh_processes(codes: Sequence[str], variables: dict[str, str]) -> list[bool]:
    """Judge answers by the exit code of a pytest process each."""

    def judge(code: str) -> bool:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            (directory / "main.py").write_text(code)
            (directory / "test_main.py").write_text(TESTS)
            command = [sys.executable, "-m", "pytest", "-q"]
            done = subprocess.run(
                command, cwd=directory, env=os.environ | variables, capture_output=True, timeout=60, check=False
            )
            return done.returncode == 0

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(judge, codes))


def in_sandboxes(problem: Problem, codes: Sequence[str]) -> list[bool]:
    """Judge answers as the verify stage does."""
    rollouts = [
        Rollout(
            problem_id=problem.id,
            index=index,
            seed=index,
            prompt_tokens=(),
            tokens=(),
            logprobs=(),
            text=f"```python\n{code}```",
            finish_reason="stop",
        )
        for index, code in enumerate(codes)
    ]
    verdicts = judge_rollouts(rollouts, {problem.id: problem}, VerifySection(workers=WORKERS))
    return [verdict.passed for verdict in verdicts]


def timed(judge: Callable[[Sequence[str]], list[bool]], count: int) -> tuple[float, float]:
    """Answers a second, and seconds of this process' CPU time an answer; stops when a verdict is wrong."""
    codes = answers(count)
    cpu, started = time.process_time(), time.perf_counter()
    verdicts = judge(codes)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    if verdicts != [ANSWERS[code] for code in codes]:
        sys.exit("a verdict is wrong")
    return count / seconds, cpu / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each side has its turn; medians are shown")
    rounds = parser.parse_args().rounds
    with open_bench(VerifySection(), [BY_TESTS]) as bench:
        [tested] = prepare([BY_TESTS], bench)
        print(f"sandbox: {bench.sandbox.name if bench.sandbox else 'none'}")
    print_machine()
    fresh, bare, cases, tests, cpu = [], [], [], [], []
    for _ in range(rounds):
        fresh.append(timed(lambda codes: in_fresh_processes(codes, {}), 12)[0])
        bare.append(timed(lambda codes: in_fresh_processes(codes, BARE), 12)[0])
        rate, cpu_s = timed(lambda codes: in_sandboxes(BY_CASES, codes), 1200)
        cases.append(rate)
        cpu.append(cpu_s)
        tests.append(timed(lambda codes: in_sandboxes(tested, codes), 240)[0])
    print(f"fresh pytest process: {median(fresh):.2f} answers/s; without plugins: {median(bare):.2f}")
    for name, rates in {"value mode": cases, "pytest mode": tests}.items():
        print(f"{name}: {median(rates):.0f} answers/s, {median(rates) / median(bare):.1f} times pytest without plugins")
    finish(
        [
            Figure("value mode, times a fresh pytest process", median(cases) / median(fresh), 40),
            Figure("pytest mode, times a fresh pytest process", median(tests) / median(fresh), 8),
            Figure("value mode, CPU ms of the parent for an answer", median(cpu) * 1e3, 1.5, "at most"),
        ]
    )


if __name__ == "__main__":
    main()
