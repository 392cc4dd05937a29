"""Solutions by majority: for a proposal without one, what most of several independent answers compute.

Answers that are wrong are mostly wrong in ways of their own, so that what many agree on is likelier right than what one
says (self-consistency: Wang et al. 2022, arXiv 2203.11171; as the reward of training without labels: Zuo et al. 2025,
arXiv 2504.16084). Here agreement is on values and not on texts, for all inputs of the proposal at once. What is found
is proved like any other solution; who wrote it is in the problem's provenance.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlm_core.config import MajoritySection
from rlm_core.errors import InfrastructureFault
from rlm_core.problems import Problem
from rlm_core.records import Refusal
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import Value, run_cases
from rlm_core.verifiers.judgement import Answer

Ask = Callable[[Sequence[Problem]], Sequence[Sequence[str]]]
"""From problems to the texts of several answers to each."""


@dataclass(frozen=True)
class Majorities:
    """What came of asking for solutions."""

    proposals: tuple[Problem, ...]
    """In their order: those that had a solution, and those that have one now."""
    refused: tuple[tuple[Problem, Refusal], ...] = ()
    """Those that have none still, and why."""
    asked: int = 0
    found: int = 0

    @property
    def figures(self) -> dict[str, int]:
        """For the stage's result."""
        return {"majorities_asked": self.asked, "majorities_found": self.found}


def with_majority_solutions(
    proposals: Sequence[Problem], ask: Ask, section: MajoritySection, sandbox: Sandbox
) -> Majorities:
    """The proposals, those without a solution with the one that most answers agree with.

    Args:
        ask: not called when `section` says that there is nothing to ask, or no proposal lacks a solution.
    """
    lacking = [proposal for proposal in proposals if proposal.reference is None] if section.answers else []
    if not lacking:
        return Majorities(tuple(proposals))
    agreed = iter([_agreed(own, texts, section, sandbox) for own, texts in zip(lacking, ask(lacking), strict=True)])
    kept: list[Problem] = []
    refused: list[tuple[Problem, Refusal]] = []
    for proposal in proposals:
        if proposal.reference is not None:
            kept.append(proposal)
        elif isinstance(found := next(agreed), Refusal):
            refused.append((proposal, found))
        else:
            kept.append(with_solution(proposal, found))
    return Majorities(tuple(kept), tuple(refused), len(lacking), len(lacking) - len(refused))


def with_solution(proposal: Problem, solution: str) -> Problem:
    """The proposal with a solution that a majority agrees on, which is marked as such."""
    origin = proposal.provenance.model_copy(update={"reference_from": "majority"})
    return proposal.model_copy(update={"reference": solution, "provenance": origin})


def _agreed(proposal: Problem, texts: Sequence[str], section: MajoritySection, sandbox: Sandbox) -> str | Refusal:
    """The shortest program of the majority, or why there is none."""
    agreeing: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for text in texts:
            code = Answer.of(text).after(proposal.preamble).code
            if code is not None and (values := _values(proposal, code, sandbox)):
                agreeing[values].append(code)
    except InfrastructureFault as fault:
        return Refusal.of_error("infrastructure", fault)
    most: list[str] = max(agreeing.values(), key=len, default=[])
    share = len(most) / len(texts)
    if share >= section.share:
        return min(most, key=lambda code: (len(code), code))
    reason = f"it has no solution, and {len(most)} of {len(texts)} answers agree, at least {section.share:.0%} needed"
    return Refusal(rule="majority", reason=reason, value=share, limit=section.share)


def _values(proposal: Problem, code: str, sandbox: Sandbox) -> str | None:
    """What a program returns for all inputs of the proposal, as one text; None when it does not for some."""
    results = run_cases(sandbox, code, proposal.entry_point, [case.input for case in proposal.cases])
    values = [result.value for result in results if isinstance(result, Value)]
    return json.dumps(values, sort_keys=True) if len(values) == len(results) else None
