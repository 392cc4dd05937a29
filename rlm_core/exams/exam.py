"""What an exam asks, and how."""

from dataclasses import dataclass

from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.problems import Problem
from rlm_core.sources.suite import Suite


@dataclass(frozen=True)
class Exam:
    """What is asked, and how."""

    name: str
    """Of the suite, for people."""
    suite: Suite
    evaluate: EvaluateSection
    rollout: RolloutSection
    verify: VerifySection
    seed: int

    @property
    def judging(self) -> VerifySection:
        """How answers are judged: what they would be paid is not asked."""
        return self.verify.model_copy(update={"partial_credit": 0.0})

    @property
    def samples(self) -> int:
        """Answers to each problem: as many as the settings say, or as the largest k of the suite needs."""
        return max([self.evaluate.samples, *(asking.k or 1 for asking in self.suite.askings.values())])

    def section(self, problem: Problem) -> RolloutSection:
        """How a problem is asked: as the suite says, and else as the settings say."""
        asking = self.suite.asking(problem)
        own = {"temperature": asking.temperature, "top_p": asking.top_p, "max_tokens": asking.max_tokens}
        given = {name: getattr(self.evaluate, name) if value is None else value for name, value in own.items()}
        return self.rollout.model_copy(update={"group_size": self.samples, "top_k": 0, **given})
