"""Whether choosing problems by their pass rates gives more groups that teach, with the default model.

    make bench-sampling     # half an hour on two cores if nothing else runs

Each arm goes through some iterations: problems are chosen from the bank, the base model answers each G times, the
answers are judged, and the pass rates decide what the next iteration chooses. Nothing is trained, so that arms differ
by the choice alone. A problem's group of an iteration is sampled once and serves every arm that chose it; groups are
kept in project/sampling, so a run that was interrupted goes on. The first iterations, in which little is known yet, do
not count.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, finish, print_machine

from rlm_core.choice import longest_unasked_first, most_useful_first
from rlm_core.config import DEFAULT_MODEL, RolloutSection, VerifySection
from rlm_core.judging import judge_rollouts
from rlm_core.model.base_model import base_path
from rlm_core.model.device import device_policy
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.rollout import sample_rollouts
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_problems
from rlm_core.usefulness import TriedProblem, Try

GROUPS = Path("project/sampling/groups.jsonl")
BANK = "bank:train"
ROLLOUT, VERIFY = RolloutSection(), VerifySection()
GAIN = 1.2
SEED = 0


class Groups:
    """How many of a problem's G answers passed in an iteration; what was sampled before is read from a file."""

    def __init__(self, policy: Policy, path: Path):
        self._policy, self._path = policy, path
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self._passed = {(row["iteration"], row["problem"]): Try(**row["group"]) for row in rows}

    def of(self, problems: Sequence[Problem], iteration: int) -> list[Try]:
        lacking = [problem for problem in problems if (iteration, problem.id) not in self._passed]
        rollouts = sample_rollouts(self._policy, lacking, ROLLOUT, derive_seed(SEED, iteration))
        verdicts = judge_rollouts(rollouts, {problem.id: problem for problem in lacking}, VERIFY)
        with self._path.open("a") as file:
            for problem in lacking:
                judged = [v for v in verdicts if v.problem_id == problem.id and v.judged]
                group = Try(iteration=iteration, rollouts=len(judged), passed=sum(v.passed for v in judged))
                self._passed[iteration, problem.id] = group
                row = {"iteration": iteration, "problem": problem.id, "group": group.model_dump()}
                file.write(json.dumps(row) + "\n")
        return [self._passed[iteration, problem.id] for problem in problems]


def useful_groups(choice: str, groups: Groups, bank: Sequence[Problem], iterations: int, wanted: int) -> list[float]:
    """The share of groups with right and wrong answers in each iteration."""
    known: dict[str, TriedProblem] = {}
    shares = []
    for iteration in range(1, iterations + 1):
        order = (
            most_useful_first(bank, list(known.values()), SEED, iteration)
            if choice == "useful"
            else longest_unasked_first(bank, list(known.values()), SEED)
        )
        found = groups.of(order[:wanted], iteration)
        for problem, group in zip(order, found, strict=False):
            before = known[problem.id].tries if problem.id in known else ()
            known[problem.id] = TriedProblem(problem=problem, tries=(*before, group))
        shares.append(sum(group.teaches for group in found) / wanted)
        print(f"{choice:8} iteration {iteration}: {shares[-1]:.3f} of {wanted} groups are useful", flush=True)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--problems", type=int, default=32, help="asked in each iteration")
    parser.add_argument("--first", type=int, default=4, help="the first iteration that counts")
    given = parser.parse_args()
    print_machine()
    bank = read_problems(BANK)
    base_path(DEFAULT_MODEL, print)
    with device_policy(DEFAULT_MODEL, None) as policy:
        groups = Groups(policy, GROUPS)
        mean = {}
        for choice in ("uniform", "useful"):
            counted = useful_groups(choice, groups, bank, given.iterations, given.problems)[given.first - 1 :]
            mean[choice] = sum(counted) / len(counted)
    finish(
        [
            Figure("share of useful groups, uniform choice", mean["uniform"], 0),
            Figure("share of useful groups, chosen by pass rates", mean["useful"], mean["uniform"]),
            Figure("one as a multiple of the other", mean["useful"] / max(mean["uniform"], 1e-9), GAIN),
        ]
    )


if __name__ == "__main__":
    main()
