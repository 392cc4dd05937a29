"""What a source gives: problems, and for some of them how they are to be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from rlm_core.config import Temperature, Tokens, TopP
from rlm_core.files import digest
from rlm_core.problems import Problem
from rlm_core.records import Record


class Asking(Record):
    """How a suite wants one of its problems asked in an exam; None leaves it to the settings."""

    k: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The k of this problem's pass@k."""
    max_tokens: Tokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Suite:
    """The problems of an exam."""

    problems: tuple[Problem, ...]
    askings: Mapping[str, Asking] = field(default_factory=dict)
    """By problem id, where the suite says something about it."""

    def asking(self, problem: Problem) -> Asking:
        return self.askings.get(problem.id, Asking())

    @property
    def digest(self) -> str:
        """Content hash; the order of the problems does not matter."""
        ids = sorted(problem.id for problem in self.problems)
        if not self.askings:
            return digest(ids)
        return digest(ids, {name: asking.model_dump() for name, asking in self.askings.items()})
