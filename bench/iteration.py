"""How long an iteration takes, against the single-process loop that this project replaces (mlxsmith 0.1.0).

    make bench-iteration       # half an hour on two cores, nearly all of it the other side's

Both sides are given the same converted default model, the same four problems and the same BLAS, sample eight answers of
64 tokens to each, judge them and train on what they were paid. Neither invents problems. The other side sits no exam;
this one cannot decide without, so it sits one of a problem, which is counted, as is what each command takes to start.
Everything else is each side's default. What both paid for the answers and what they decided is shown, too: speed alone
says nothing. Exits 1 when the goal is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from figures import Figure, finish, print_machine

from rlm_core.config import DEFAULT_MODEL
from rlm_core.files import read_record, write_jsonl
from rlm_core.model.default_model import fetch_default_model
from rlm_core.problems import Problem
from rlm_core.sources import read_problems
from rlm_core.state.project import Project
from rlm_core.summary import Summary

PROBLEMS, GROUP, TOKENS, TEMPERATURE = 4, 8, 64, 0.8
GOAL = 20


@dataclass(frozen=True)
class Came:
    """What came of one iteration."""

    side: str
    seconds: float
    rewards: list[float]
    """The mean of each problem's answers, or of all where a side tells no more."""
    decision: str

    def print(self) -> None:
        rewards = ", ".join(f"{reward:.2f}" for reward in self.rewards)
        print(f"{self.side}: {self.seconds:.1f} s, mean rewards {rewards}, {self.decision}")


def problems() -> list[Problem]:
    return read_problems("bank:train[starter]")[:PROBLEMS]


def write_config(directory: Path) -> Path:
    """This side's config, in a new project."""
    asked = problems()
    suites = {}
    for kind in ("benchmark", "holdout"):
        suites[kind] = str(directory / f"{kind}.jsonl")
        write_jsonl(Path(suites[kind]), read_problems(f"bank:{kind}[starter]")[:1])
    bank = write_jsonl(directory / "bank.jsonl", asked)
    settings = {
        "project": str(directory / "project"),
        "generate": {"problems": len(asked), "sources": {"bank": 1}, "bank": str(bank)},
        "mutate": {"parents": 0, "per_problem": 0, "of_solutions": 0},
        "rollout": {"group_size": GROUP, "max_tokens": TOKENS, "temperature": TEMPERATURE},
        "evaluate": suites,
    }
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump(settings))
    return config


def ours(directory: Path) -> Came:
    """One iteration by the command line, in a new project."""
    config = write_config(directory)
    started = time.perf_counter()
    _run([sys.executable, "-m", "rlm_cli.main", "run", "-c", str(config)])
    seconds = time.perf_counter() - started
    run = Project(directory / "project").run(1)
    decision = json.loads((run / "decision.json").read_text())
    summary = read_record(run / "summary.json", Summary)
    assert summary.rollouts == GROUP * PROBLEMS, summary
    return Came("this project", seconds, [summary.reward_mean], f"{decision['outcome']}: {decision['reason']}")


def theirs(directory: Path) -> Came:
    """The other loop's iteration, in a process of its own."""
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it runs `pytest` by name
    started = time.perf_counter()
    _run([sys.executable, __file__, "--theirs", str(directory)], env={**os.environ, "PATH": binaries})
    seconds = time.perf_counter() - started
    [run] = [decided.parent for decided in directory.glob("runs/*/gating.json")]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    gating = json.loads((run / "gating.json").read_text())
    decision = f"{'accepted' if gating['accepted'] else 'rejected'} with a score of {gating['adapter_score']}"
    return Came("mlxsmith 0.1.0", seconds, [row["mean_reward"] for row in rows], decision)


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} ended with {done.returncode}")


def run_theirs(directory: Path) -> None:
    """Its loop for one iteration, but for what invents problems: it is given the four."""
    import rlm_core  # noqa: F401  before MLX: it chooses the BLAS

    from mlxsmith.config import ProjectConfig  # isort: skip
    from mlxsmith.rlm import loop
    from mlxsmith.rlm.generate import GeneratedTask

    tasks = []
    for problem in problems():
        prompt = f"{problem.prompt}\n{problem.signature}\nReturn only Python code."  # as it makes its own
        tasks.append(GeneratedTask(problem.entry_point, prompt, _tests(problem)))
    config = ProjectConfig()
    config.model.id = str(fetch_default_model())
    config.rlm.benchmark_suite, config.rlm.holdout_suite = "", None
    config.rlm.rollouts_per_task = GROUP
    config.rft.max_new_tokens, config.rft.temperature = TOKENS, TEMPERATURE
    config.serve.port = 9  # where nothing listens: it samples itself then
    loop.build_tasks = lambda *_, **__: tasks
    loop.run_rlm(directory, config, iterations=1)


def _tests(problem: Problem) -> str:
    """The problem's cases as a file of tests."""
    lines = [f"from main import {problem.entry_point}"]
    for number, case in enumerate(problem.cases):
        given = ", ".join(map(repr, case.input))
        lines.append(f"def test_{number}():\n    assert {problem.entry_point}({given}) == {case.expected!r}")
    return "\n\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theirs", type=Path, help="run the other side only, in this directory")
    directory = parser.parse_args().theirs
    if directory:
        run_theirs(directory)
        return
    print_machine()
    fetch_default_model(print)
    print(f"{len(problems())} problems, {GROUP} answers each, {TOKENS} tokens, {DEFAULT_MODEL}")
    with tempfile.TemporaryDirectory() as place:
        came = [side(Path(place)) for side in (ours, theirs)]
    for each in came:
        each.print()
    finish([Figure("speed, times mlxsmith's loop", came[1].seconds / came[0].seconds, GOAL)])


if __name__ == "__main__":
    main()
