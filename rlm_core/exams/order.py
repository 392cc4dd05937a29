"""Who is to sit which exam, how and where; and an exam that a person orders, checked before any work is done."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlm_core.config import Config, EvaluateSection, RolloutSection, VerifySection
from rlm_core.config_file import parse_config
from rlm_core.exams.exam import Exam
from rlm_core.exams.examinees import examinee_of
from rlm_core.records import Examinee, Recited
from rlm_core.sources import read_problems, read_suite
from rlm_core.verifiers.check import check_problems


@dataclass(frozen=True)
class Order:
    """An exam that somebody is to sit."""

    directory: str
    """Below which the report is written."""
    project: str
    """Its ledger keeps reports."""
    who: str
    """`base`, `incumbent`, `candidate` …; part of the report's name."""
    examined: Examinee
    suite: str
    evaluate: EvaluateSection
    rollout: RolloutSection
    verify: VerifySection
    seed: int

    @classmethod
    def by(cls, config: Config, directory: str, who: str, examined: Examinee, suite: str) -> "Order":
        """One of the project's own exams: as the config has it, with the same seed each time."""
        project = str(Path(config.project).absolute())
        own = (config.evaluate, config.rollout, config.verify, config.exam_seed)
        return cls(directory, project, who, examined, suite, *own)

    def exam(self) -> Exam:
        """What is asked. Raises ProblemError as `read_suite`."""
        return Exam(self.suite, read_suite(self.suite), self.evaluate, self.rollout, self.verify, self.seed)

    def parameters(self) -> dict[str, Any]:
        """By name, for the task that has it sat."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def order_exam(
    config: Config,
    policy: str,
    suite: str,
    samples: int | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Order:
    """Check an exam that somebody wants to have sat. What is None is as the config says.

    Args:
        policy: as `examinees.examinee_of` has it.
        suite: as `sources.read_suite` has it.
        temperature: 0 is greedy, and then one sample is taken unless more are asked for.
        seed: of the exam; by default the one of the project's own exams, so that reports can be compared with theirs.

    Raises:
        ConfigError: a value is out of range.
        UsageError, SandboxUnavailable: policy or suite cannot be used.
    """
    who, examined = examinee_of(policy, config, say)
    if samples is None and (isinstance(examined, Recited) or temperature == 0):
        samples = 1  # all answers would be the same
    given: dict[str, float | None] = {"samples": samples, "temperature": temperature, "max_tokens": max_tokens}
    kept = {name: value for name, value in given.items() if value is not None}
    evaluate = parse_config({"evaluate": {**config.evaluate.dump(), **kept}}, "the exam").evaluate
    check_problems(read_problems(suite), config.verify.limits, config.verify.functions)
    order = Order.by(config, str(Path(config.project).absolute()), who, examined, suite)
    return replace(order, evaluate=evaluate, seed=order.seed if seed is None else seed)
