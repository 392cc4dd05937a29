"""How time, memory, disk and Prefect's database grow, from 10 to 10,000 problems and from 1 to 1,000 iterations.

    make bench-scale

Whole iterations under Prefect with the tests' tiny model, whose answers and verdicts are made up, so that what is left
is what surrounds that work; training is real. The fan-out is compared with the same shards sampled and judged by plain
calls: the difference is what orchestration costs. Then an iteration is put again and again into its ledger and into
Prefect's database, and what a person waits for is timed. How a figure grows is the exponent between the two largest
sizes: 1 is in proportion. Exits 1 when a goal is missed.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import scale_replay as replay
import scale_stubs as stubs
from figures import Figure, finish, print_machine

from rlm_cli.embedded import make_prefect_ready
from rlm_cli.status import show_history
from rlm_cli.watch import Watcher
from rlm_core import rollout, verify
from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.pages.learning_page import learning_page
from rlm_core.problems import Problem
from rlm_core.proposals.known import KnownProblems, repeats
from rlm_core.records import FileRef, PolicyRef
from rlm_core.rounds import Rounds
from rlm_core.state.ledger import open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of

QUICK_S = 600.0
"""An iteration of configs/quick.yaml on the machine of the README, which has as many problems as the next number."""
QUICK_PROBLEMS = 64
_STEEPEST = 1.15
"""What counts as in proportion: short times are not exact."""
_NOTHING_S = 0.05
"""A step that takes no longer is not fitted."""

Measured = dict[int, dict[str, float]]
"""By size, then by what was measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, nargs="+", default=[10, QUICK_PROBLEMS, 100, 1_000, 10_000])
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 10, 100, 1_000])
    given = parser.parse_args()
    print_machine()
    with TemporaryDirectory() as name:
        home = Path(name, "prefect")
        os.environ["PREFECT_HOME"] = str(home)
        make_prefect_ready(Watcher())
        stubs.put_in_place()
        by_problems = {count: of_problems(Path(name, str(count)), count) for count in given.problems}
        report("problems", by_problems)
        by_iterations = dict(of_iterations(Path(name, "iterations"), given.iterations, home / "prefect.db"))
        report("iterations", by_iterations)
    finish([*goals_of_problems(by_problems), *goals_of_iterations(by_iterations)])


# ---------------------------------------------------------------------------------------------------------- problems


def of_problems(directory: Path, count: int) -> dict[str, float]:
    """One iteration with so many problems."""
    found: dict[str, float] = {}
    path = stubs.write_config(directory, count)
    config = load_config(path)
    with timed(found, "iteration, s"), fan_out_timed(found):
        result = run(path)
    stages = result["summary"]["stage_seconds"]
    found |= {f"{name}, s": stages[name] for name in ("generate", "mutate", "filter", "train", "evaluate")}
    with timed(found, "shards by plain calls, s"):
        plain(config, Project(Path(config.project)).run(1), count)
    shards = math.ceil(count / stubs.SHARD_PROBLEMS)
    found["a shard's orchestration, ms"] = 1e3 * (found["fan-out, s"] - found["shards by plain calls, s"]) / shards
    work = sum(stages[name] for name in ("generate", "mutate", "filter", "train", "evaluate"))
    found["orchestration, s"] = found["iteration, s"] - work - found["shards by plain calls, s"]
    earlier, proposals = stubs.problems(count, 2), stubs.problems(count, 3)
    with timed(found, "as many lookups as known problems, s"):
        look_up(earlier, proposals, config)
    found["directory, MB"] = size_of(Project(Path(config.project)).root) / 1e6
    found["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return found


def run(config: Path) -> dict[str, Any]:
    from flows.iterate import iterate  # Prefect reads its settings when it is imported

    return dict(iterate(str(config)))


@contextmanager
def fan_out_timed(found: dict[str, float]) -> Iterator[None]:
    from flows.stages import Stages

    original = Stages.rollout_and_verify

    def measured(self: Stages, problems: Any) -> Any:
        with timed(found, "fan-out, s"):
            return original(self, problems)

    Stages.rollout_and_verify = measured  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stages.rollout_and_verify = original  # type: ignore[method-assign]


def plain(config: Config, directory: Path, count: int) -> None:
    """The shards' work again, with nothing around it."""
    with open_ledger(Project(Path(config.project)).ledger) as ledger:
        base = ledger.base()
    assert base is not None
    learner = PolicyRef(base=base.name, fingerprint=base.fingerprint)
    problems = FileRef.of(directory / "problems.jsonl")
    for shard in Rounds(count, 0, stubs.SHARD_PROBLEMS).first():
        made = rollout.run(directory / "plain", learner, problems, shard, config.rollout, 0)
        verify.run(directory / "plain", problems, made.files["rollouts"], config.verify)


def look_up(earlier: list[Problem], proposals: list[Problem], config: Config) -> None:
    """Each proposal compared with all known problems, by content and by words."""
    known = KnownProblems({"corpus": earlier})
    for proposal in proposals:
        repeats(proposal, known, known.names, config.filter)


def goals_of_problems(found: Measured) -> list[Figure]:
    largest = found[max(found)]
    quick = found.get(QUICK_PROBLEMS, found[min(found)])
    share = quick["orchestration, s"] / (quick["orchestration, s"] + QUICK_S)
    return [
        Figure("orchestration of a quick iteration, %", 100 * share, 3, "at most"),
        Figure("orchestration of a shard, ms", largest["a shard's orchestration, ms"], 15, "at most"),
        steepest("problems", found),
    ]


# -------------------------------------------------------------------------------------------------------- iterations


def of_iterations(directory: Path, sizes: list[int], database: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """One iteration that was run and others like it, timed at each of these numbers of them."""
    path = stubs.write_config(directory, QUICK_PROBLEMS)
    run(path)
    config = load_config(path)
    project = Project(Path(config.project))
    flow_run = newest_run()
    every = stubs.problems(QUICK_PROBLEMS, 4)
    done = 1
    for size in sizes:
        commit: dict[str, float] = {}
        with open_ledger(project.ledger) as ledger:
            for number in range(done + 1, size + 1):
                commit.clear()
                with timed(commit, "commit, s"):
                    replay.into_ledger(ledger, number, every, stubs.problems(QUICK_PROBLEMS, 1))
        replay.into_prefect(database, flow_run, size - done)
        done = max(done, size)
        found = {**commit, **of_history(project, path), **of_ui(project.root.name)}
        found["ledger, MB"] = project.ledger.stat().st_size / 1e6
        found["Prefect's database, MB"] = replay.size(database) / 1e6
        yield size, found


def of_history(project: Project, config: Path) -> dict[str, float]:
    """What an iteration reads and writes of those before it, and what a person asks for."""
    found: dict[str, float] = {}
    with open_ledger(project.ledger) as ledger:
        with timed(found, "begin: lineage, corpus, s"):
            number = ledger.next_iteration()
            ledger.lineage()
            ledger.corpus(before=number)
        with timed(found, "filter: what is known, s"):
            KnownProblems({"corpus": [known.problem for known in ledger.tried_problems(before=number)]})
        with timed(found, "history, s"), redirect_stdout(StringIO()):
            show_history(ledger, as_json=False)
        with timed(found, "learning page, s"):
            page = learning_page("project", ledger.history())
        found["learning page, MB"] = len(page) / 1e6
    with timed(found, "backup, s"):
        back_up(project)
    for command in ("history", "status"):
        with timed(found, f"rlm {command}, s"):
            words = [sys.executable, "-m", "rlm_cli.main", command, "--config", str(config)]
            subprocess.run(words, check=True, capture_output=True)
    return found


def of_ui(project: str) -> dict[str, float]:
    """Prefect's answers to what its UI asks: the list of runs, a run's page, the artifacts, a page's versions."""
    run_id = newest_run()
    of_run = {"flow_runs": {"id": {"any_": [run_id]}}}
    key = {"artifacts": {"key": {"any_": [f"learning-{project}"]}}, "sort": "CREATED_DESC", "limit": 10}
    queries: Mapping[str, Mapping[str, Any]] = {
        "runs": {"/flow_runs/filter": {"sort": "START_TIME_DESC", "limit": 50}, "/flow_runs/count": {}},
        "run": {
            "/task_runs/filter": {**of_run, "limit": 200},
            "/logs/filter": {"logs": {"flow_run_id": {"any_": [run_id]}}, "limit": 200},
        },
        "artifacts": {"/artifacts/latest/filter": {"limit": 50}},
        "versions": {"/artifacts/filter": key},
    }
    found: dict[str, float] = {}
    for name, asked in queries.items():
        with timed(found, f"UI: {name}, s"):
            for path, content in asked.items():
                ask(path, content)
    return found


def ask(path: str, content: Mapping[str, Any]) -> Any:
    answer = httpx.post(f"{os.environ['PREFECT_API_URL']}{path}", json=content, timeout=120)
    answer.raise_for_status()
    return answer.json()


def newest_run() -> str:
    return str(ask("/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})[0]["id"])


def goals_of_iterations(found: Measured) -> list[Figure]:
    largest, last = max(found), found[max(found)]
    asked = {name: value for name, value in last.items() if name.startswith(("rlm ", "UI: "))}
    slowest = max(asked, key=lambda name: asked[name])
    return [
        Figure(f"seconds at {largest} iterations for {slowest.removesuffix(', s')}", asked[slowest], 1, "at most"),
        steepest("iterations", found),
    ]


# ------------------------------------------------------------------------------------------------------------ growth


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    found[name] = time.perf_counter() - started


def exponents(found: Measured) -> dict[str, float]:
    """How each figure grows between the two largest sizes; only those that are measurable there and grow."""
    smaller, larger = sorted(found)[-2:]
    grown: dict[str, float] = {}
    for name, value in found[larger].items():
        before = found[smaller].get(name)
        if before and before > 0 and value > _NOTHING_S:
            grown[name] = math.log(value / before) / math.log(larger / smaller)
    return grown


def steepest(what: str, found: Measured) -> Figure:
    grown = exponents(found)
    name = max(grown, key=lambda each: grown[each])
    return Figure(f"largest exponent of growth with {what}: {name}", grown[name], _STEEPEST, "at most")


def report(what: str, found: Measured) -> None:
    """Print a table: a line for each figure, a column for each size."""
    sizes = sorted(found)
    grown = exponents(found)
    print(f"{what:40s}" + "".join(f"{size:>11,d}" for size in sizes) + "  exponent")
    for name in found[sizes[-1]]:
        row = "".join(f"{found[size][name]:11.3f}" if name in found[size] else f"{'–':>11s}" for size in sizes)
        print(f"{name:40s}{row}  " + (f"{grown[name]:8.2f}" if name in grown else f"{'–':>8s}"))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
