"""How long it takes to make, prove and filter problems without the model.

    make bench-problems

Composed problems and mutants of them and of the bank go through the filter with both exam suites, the bank and an
earlier corpus of composed problems known. Two numbers more have no goal: how long a lookup among many known problems
takes, and which rules refused how many. Exits 1 when a goal is missed.
"""

import argparse
import time
from collections import Counter

from figures import Figure, finish, print_machine

from rlm_core.config import FilterSection, VerifySection
from rlm_core.filter import filter_proposals
from rlm_core.problems import Problem
from rlm_core.proposals.claims import with_reference_values
from rlm_core.proposals.known import KnownProblems
from rlm_core.proposals.proof import open_prover
from rlm_core.sources import read_problems
from rlm_core.sources.procedural import problems
from rlm_core.sources.rewrites import rewritten

DIFFICULTIES = {1: 1.0, 2: 1.0, 3: 1.0}
MUTANTS = 0.1
"""Share of the proposals."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="proposals")
    parser.add_argument("--corpus", type=int, default=1_000, help="problems of earlier iterations")
    arguments = parser.parse_args()
    print_machine()
    section = FilterSection()
    groups = {"bank": read_problems("bank:train")}
    groups |= {group: read_problems(f"bank:{group}") for group in ("benchmark", "holdout")}
    with open_prover(VerifySection()) as prover:
        groups["corpus"] = problems(arguments.corpus, 1, 1, DIFFICULTIES, prover.sandbox)
        started = time.perf_counter()
        count = round(arguments.count * (1 - MUTANTS))
        made = problems(count, 2, 1, DIFFICULTIES, prover.sandbox)
        mutants = rewritten([*made, *groups["bank"]], arguments.count - count, 3)
        proposals = [with_reference_values(proposal, prover.hasty) for proposal in [*made, *mutants]]
        making_s = time.perf_counter() - started
        kept, rejections = filter_proposals(proposals, [], 0, KnownProblems(groups), section, prover)
        seconds = time.perf_counter() - started
    print(f"{len(proposals)} made in {making_s:.1f} s, {len(kept)} kept, {dict(Counter(r.rule for r in rejections))}")
    print(f"by origin: {dict(Counter(map(origin, proposals)))} made, {dict(Counter(map(origin, kept)))} kept")
    known = KnownProblems({"corpus": groups["corpus"]})
    started = time.perf_counter()
    for proposal in proposals:
        known.nearest(proposal, ["corpus"])
    looked_s = time.perf_counter() - started
    print(f"nearest of {len(groups['corpus'])} known problems: {looked_s / len(proposals) * 1e3:.2f} ms")
    finish(
        [
            Figure("seconds for 500 proposals", seconds / len(proposals) * 500, 300, "at most"),
            Figure("seconds for one", seconds / len(proposals), 0.6, "at most"),
        ]
    )


def origin(problem: Problem) -> str:
    return problem.provenance.change or problem.provenance.source


if __name__ == "__main__":
    main()
