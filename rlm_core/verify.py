"""Judge an iteration's rollouts, and say of how many there is something to learn."""

from collections.abc import Sequence
from pathlib import Path

from rlm_core.config import VerifySection
from rlm_core.errors import StageFailed
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.judging import judge_rollouts, sandbox_used
from rlm_core.records import FileRef, Rollout, StageResult, Verdict
from rlm_core.rounds import problems_of
from rlm_core.state.run import Run


def run(directory: Path, problems: FileRef, rollouts: FileRef, section: VerifySection) -> StageResult:
    """The verify stage for one shard: judge its rollouts into `directory/verdicts/`, under the same file name."""
    source = Path(rollouts.path)
    verdicts = judge_rollouts(list(read_jsonl(source, Rollout)), problems_of(problems), section, part=source.stem)
    path = write_jsonl(Run(directory).verdicts / source.name, verdicts)
    return StageResult(
        files={"verdicts": FileRef.of(path)},
        figures={
            "verdicts": len(verdicts),
            "passed": sum(verdict.passed for verdict in verdicts),
            "infrastructure_faults": sum(not verdict.judged for verdict in verdicts),
            "reward": sum(verdict.reward for verdict in verdicts),
            "useful_groups": useful_groups(verdicts),
            "latency_s": [verdict.latency_s for verdict in verdicts],
            "sandbox": sandbox_used(verdicts),
        },
    )


def useful_groups(verdicts: Sequence[Verdict]) -> int:
    """Problems whose answers were not all paid the same, so that there is something to learn from them."""
    rewards: dict[str, set[float]] = {}
    for verdict in verdicts:
        if verdict.judged:
            rewards.setdefault(verdict.problem_id, set()).add(verdict.reward)
    return sum(len(different) > 1 for different in rewards.values())


def require_few_faults(verdicts: Sequence[Verdict], max_failed_share: float) -> None:
    """Stop an iteration in which the machinery lost too many rollouts.

    Raises:
        StageFailed: with the first fault's reason.
    """
    faults = [verdict for verdict in verdicts if not verdict.judged]
    if len(faults) > max_failed_share * len(verdicts):
        raise StageFailed(
            f"verify: {len(faults)} of {len(verdicts)} rollouts could not be judged, verify.max_failed_share allows "
            f"{max_failed_share:g}; the first: {faults[0].reason}"
        )
