"""An exam as a person orders it, from the command line or as a deployment: checked before any work is done."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlm_core.config import Config, EvaluateSection
from rlm_core.config_file import parse_config
from rlm_core.exams.examinees import examinee_of
from rlm_core.records import Examinee, Recited
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_problems
from rlm_core.state.project import Project
from rlm_core.verifiers.check import check_problems


@dataclass(frozen=True)
class Order:
    """Who is examined on what, and how; the parameters of `evaluate.run`."""

    directory: Path
    project: Path
    who: str
    examined: Examinee
    suite: str
    evaluate: EvaluateSection
    seed: int


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
    root = Path(config.project).absolute()
    exam_seed = derive_seed(config.seed, "exams") if seed is None else seed
    return Order(Project(root).root, root, who, examined, suite, evaluate, exam_seed)
