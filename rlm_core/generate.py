"""New problems: each source that the config gives a weight is asked for its share of proposals."""

from pathlib import Path

from rlm_core.config import GenerateSection, VerifySection
from rlm_core.examples import judged_by_cases
from rlm_core.problems import Problem
from rlm_core.proposers import PROPOSERS
from rlm_core.proposers.proposer import Context
from rlm_core.records import FileRef, PolicyRef, Rejection, StageResult
from rlm_core.sources import read_problems
from rlm_core.written import written


def run(
    directory: Path,
    learner: PolicyRef,
    section: GenerateSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
    corpus: FileRef | None = None,
) -> StageResult:
    """The generate stage: proposals, into `directory/proposals.jsonl`, and a check that the bank can be read.

    Args:
        corpus: what may be shown to the model, of earlier iterations, the most useful first.
        verify: for the sandbox in which references are run.
    """
    bank = judged_by_cases(read_problems(section.bank))
    context = Context(section, verify, learner, project_seed, iteration, bank, corpus)
    counts = section.counts
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    for name, propose in PROPOSERS.items():
        if count := counts.get(name):
            made, refused = propose(context, count)
            problems += made
            rejections += refused
    return written(directory, "proposals", problems, rejections, asked=counts.get("model", 0))
