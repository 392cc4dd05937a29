"""What proposals claim that their solutions give, against what these give in the sandbox."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rlm_core.errors import InfrastructureFault
from rlm_core.problems import Case, Problem
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import Value, run_cases


def with_reference_values(proposal: Problem, sandbox: Sandbox) -> Problem:
    """The proposal with expected values that its own solution gives, when that runs on every input.

    Who invents a problem is better at solving it than at working out examples in the head; what a solution computes is
    at least consistent. One that does not run is left to the rules.
    """
    if proposal.reference is None:
        return proposal
    inputs = [case.input for case in proposal.cases]
    try:
        results = run_cases(sandbox, proposal.reference, proposal.entry_point, inputs)
    except InfrastructureFault:
        return proposal
    if not all(isinstance(result, Value) for result in results):
        return proposal
    cases = [Case(input=i, expected=r.value) for i, r in zip(inputs, results, strict=True) if isinstance(r, Value)]
    provenance = proposal.provenance.model_copy(update={"expected_from": "reference"})
    return proposal.model_copy(update={"cases": tuple(cases), "provenance": provenance})


@dataclass(frozen=True)
class Claims:
    """How many expected values a model claimed and could be checked, and how many of them were wrong."""

    checked: int
    wrong: int

    @classmethod
    def of(cls, offered: Sequence[Problem], answered: Sequence[Problem]) -> Self:
        """Count them.

        Args:
            offered: proposals as they came.
            answered: the same with their solutions' values.
        """
        pairs = [
            (claimed, computed)
            for before, after in zip(offered, answered, strict=True)
            if before.provenance.written_by_model and after.provenance.expected_from == "reference"
            for claimed, computed in zip(before.cases, after.cases, strict=True)
        ]
        return cls(len(pairs), sum(not _same(claimed, computed) for claimed, computed in pairs))

    @property
    def figures(self) -> dict[str, int]:
        """For the stage's result."""
        return {"claims_checked": self.checked, "claims_wrong": self.wrong}


def _same(claimed: Case, computed: Case) -> bool:
    return claimed.raises is None and _text(claimed) == _text(computed)


def _text(case: Case) -> str:
    return json.dumps(case.expected, sort_keys=True)
