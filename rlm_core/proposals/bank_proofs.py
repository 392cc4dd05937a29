"""Problems of a bank of the user's own, each proved before it is trained on, and what came of it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlm_core.answers import in_block
from rlm_core.config import FilterSection, VerifySection
from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.files import digest, write_json
from rlm_core.judging import open_bench
from rlm_core.problems import Cases, Problem
from rlm_core.proposals.majority import Ask, with_majority_solutions, with_solution
from rlm_core.proposals.proof import Prover, open_prover
from rlm_core.proposals.rules import broken_rule
from rlm_core.records import Record, Refusal
from rlm_core.verifiers import Answer, Bench, judge, prepare

_VERSION = 2
"""Raised when another proof would come to another result."""
_RULES = ("min_cases", "consistent_cases", "distinct_outputs", "trivial")
"""Those that say whether cases can judge answers; how long a problem is, and what it is about, people decide."""

Prove = Callable[[Problem], Problem | Refusal]
"""From a problem of the bank to what is trained on, or why it is not."""


def trusted(problem: Problem) -> Problem:
    """A problem of a bank that is taken as it is."""
    return problem


@dataclass(frozen=True)
class Answerer:
    """Who is asked for solutions of problems that have none."""

    name: str
    ask: Ask


class Proof(Record):
    """What came of the proof of one problem."""

    refused: Refusal | None = None
    solution: str | None = None
    """By a majority, of a problem that had none."""


_KEPT = TypeAdapter(dict[str, Proof])


class BankProofs:
    """The proofs of a bank's problems. What took a run is kept in a file: only what is new, or was changed, is run.

    The file is no more than a memory. When it is gone or damaged, all is proved anew.
    """

    def __init__(
        self,
        bank: Sequence[Problem],
        prover: Prover,
        bench: Bench,
        section: FilterSection,
        answerer: Answerer | None,
        memory: Path | None,
    ) -> None:
        """See `open_bank_proofs`."""
        self._own = {problem.id for problem in bank}
        self._prover = prover
        self._bench = bench
        self._section = section
        self._answerer = answerer if section.majority.answers else None
        self._memory = memory
        self._known = _read(memory) if memory else {}
        self._found: dict[str, Problem | Refusal] = {}

    @property
    def figures(self) -> dict[str, int]:
        """For the stage's result."""
        refused = sum(isinstance(found, Refusal) for found in self._found.values())
        return {"bank_tried": len(self._found), "bank_refused": refused}

    def proved(self, problem: Problem) -> Problem | Refusal:
        """The problem, with a solution where one was found for it; or why it is not proved.

        One that is not of this bank is taken as it is.
        """
        if problem.id not in self._own:
            return problem
        if problem.id not in self._found:
            by_cases = isinstance(problem.verifier, Cases)
            self._found[problem.id] = self._by_cases(problem) if by_cases else self._by_its_verifier(problem)
        return self._found[problem.id]

    def _by_cases(self, problem: Problem) -> Problem | Refusal:
        if refused := broken_rule(problem, self._section, _RULES):
            return refused
        keys = [digest(_VERSION, problem.id, problem.reference, self._section.dump(), self._prover.limits.model_dump())]
        if problem.reference is None:
            if self._answerer is None:
                reason = "it has no reference, and filter.majority.answers is 0: none is looked for"
                return Refusal(rule="reference", reason=reason, value=0.0, limit=1.0)
            keys.append(digest(keys[0], self._answerer.name))  # where it finds none, another learner may
        proof = next((self._known[key] for key in keys if key in self._known), None)
        if proof is None:
            proof = self._proof(problem)
            self._remember(keys[-1] if proof.refused else keys[0], proof)
        return proof.refused or (with_solution(problem, proof.solution) if proof.solution else problem)

    def _proof(self, problem: Problem) -> Proof:
        """What the problem's own reference proves, or one that the answerer's answers agree on."""
        if problem.reference is not None or self._answerer is None:
            return Proof(refused=self._prover.refusal(problem, self._section))
        found = with_majority_solutions([problem], self._answerer.ask, self._section.majority, self._prover.hasty)
        for _, refused in found.refused:
            return Proof(refused=refused)
        [solved] = found.proposals
        return Proof(refused=self._prover.refusal(solved, self._section), solution=solved.reference)

    def _by_its_verifier(self, problem: Problem) -> Problem | Refusal:
        """Where cases do not judge alone: a reference passes, if there is one, and what does no work does not."""
        rule = "reference"
        try:
            [ready] = prepare([problem], self._bench, trivial=False)
            if refused := self._failed(ready):
                return refused
            rule = "trivial"
            [ready] = prepare([ready], self._bench)
        except ProblemError as error:
            return Refusal.of_error(rule, error)
        except InfrastructureFault as fault:
            return Refusal.of_error("infrastructure", fault)
        if ready.trivial_share == 1.0:
            what = "an empty answer or a function that does nothing" if ready.asks_for_code else "an empty answer"
            return Refusal(rule="trivial", reason=f"{what} passes", value=1.0, limit="none")
        return problem

    def _failed(self, problem: Problem) -> Refusal | None:
        """Why its reference is none, where it has one."""
        if problem.reference is None:
            return None
        text = in_block(problem.reference) if problem.asks_for_code else problem.reference
        judgement = judge(Answer.of(text), problem, self._bench)
        if judgement.status == "passed":
            return None
        reason = f"its own reference fails: {judgement.reason}"
        return Refusal(rule="reference", reason=reason, value=judgement.score, limit=1.0)

    def _remember(self, key: str, proof: Proof) -> None:
        if self._memory is None or (proof.refused and proof.refused.rule == "infrastructure"):
            return
        self._known[key] = proof
        write_json(self._memory, {name: each.model_dump() for name, each in self._known.items()})


@contextmanager
def open_bank_proofs(
    bank: Sequence[Problem],
    verify: VerifySection,
    section: FilterSection,
    answerer: Answerer | None = None,
    memory: Path | None = None,
) -> Iterator[BankProofs]:
    """The proofs of a bank's problems, with what they run in; that is closed at the end.

    Args:
        answerer: who is asked where `section.majority` says so; None is nobody.
        memory: the file in which they are kept.
    """
    judged = [problem for problem in bank if not isinstance(problem.verifier, Cases)]
    with open_prover(verify, patient=True) as prover, open_bench(verify, judged) as bench:
        yield BankProofs(bank, prover, bench, section, answerer, memory)


def _read(path: Path) -> dict[str, Proof]:
    try:
        return _KEPT.validate_python(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError, RecursionError):
        return {}
