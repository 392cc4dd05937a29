"""What every source of proposals is: a function from what it may look at, and a number, to so many proposals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlm_core.config import GenerateSection, VerifySection
from rlm_core.problems import Problem
from rlm_core.records import FileRef, PolicyRef, Rejection
from rlm_core.seeds import derive_seed


@dataclass(frozen=True)
class Context:
    """What a source may look at in an iteration."""

    section: GenerateSection
    verify: VerifySection
    """For the sandbox in which code is run."""
    learner: PolicyRef
    project_seed: int
    iteration: int
    """From 1."""
    bank: Sequence[Problem]
    """Those of its problems that are judged by cases."""
    corpus: FileRef | None = None
    """What may be shown to the model, of earlier iterations, the most useful first."""

    @property
    def seed(self) -> int:
        """Of the iteration's generate stage."""
        return derive_seed(self.project_seed, self.iteration, "generate")


class Proposer(Protocol):
    """A source of proposals."""

    def __call__(self, context: Context, count: int, /) -> tuple[list[Problem], list[Rejection]]:
        """So many proposals, unfiltered, and what stands for those that could not be had.

        The same for the same context: an iteration that is continued has to come to the same problems.

        Args:
            count: at least 1.

        Raises:
            InfrastructureFault: the machinery failed; it is asked again.
        """
