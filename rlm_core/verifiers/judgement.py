"""What a verifier is given and what it gives back."""

from dataclasses import dataclass, field
from typing import Literal, Self

from rlm_core.answers import extract_code
from rlm_core.records import CaseResult, Record, Share, Usage
from rlm_core.sandbox import Limits, Sandbox
from rlm_core.verifiers.scorer import Scorer


@dataclass(frozen=True)
class Answer:
    """What is judged."""

    text: str
    """All that the model said."""
    code: str | None
    """The code in it, if there is any."""

    @classmethod
    def of(cls, text: str) -> Self:
        """The answer in a model's words."""
        return cls(text, extract_code(text))

    def after(self, preamble: str) -> "Answer":
        """The answer with the problem's preamble before its code."""
        if not preamble or self.code is None:
            return self
        return Answer(self.text, f"{preamble}\n{self.code}")


@dataclass(frozen=True)
class Bench:
    """What verifiers may work with."""

    sandbox: Sandbox | None = None
    """Where code is run; needed when problems ask for code."""
    functions: frozenset[str] = frozenset()
    """The user's own functions that may be called, as `package.module:name`."""
    limits: Limits = field(default_factory=Limits)
    scorer: Scorer = field(default_factory=Scorer)
    """Where libraries judge texts; started when it is needed."""


class Judgement(Record):
    """What a verifier said about one answer."""

    status: Literal["passed", "failed"]
    reason: str = ""
    """Why it failed as a whole, for people; empty when it passed."""
    score: Share
    """1 when it passed; else how much of it was right, as far as the verifier can tell."""
    cases: tuple[CaseResult, ...] = ()
    """One for each of the verifier's parts, in their order: cases, tests, verifiers that it is composed of."""
    output: str = ""
    """What the code printed, cut to the sandbox's limit."""
    usage: Usage = Usage()

    @classmethod
    def binary(cls, reason: str) -> "Judgement":
        """Right when there is nothing to say against it, or else wrong altogether."""
        return cls(status="failed" if reason else "passed", reason=reason, score=0.0 if reason else 1.0)

    @classmethod
    def graded(cls, score: float, pass_at: float, reason: str, late: bool = False) -> "Judgement":
        """Right from some score on, and then right altogether; or else wrong for a reason, with that score.

        Args:
            late: whether the clock was the reason, which on a busy machine may be no fault of the answer.
        """
        if score >= pass_at:
            return cls(status="passed", score=1.0)
        return cls(status="failed", reason=reason, score=score, usage=Usage(ran_out_of_clock=late))

    @classmethod
    def no_code(cls, cases: int) -> "Judgement":
        """Of an answer that holds no code and needs some."""
        return cls(
            status="failed", reason="no code in the answer", score=0.0, cases=(CaseResult(outcome="not_run"),) * cases
        )
