"""The verify stage: its files and figures, and how many faults of the machinery are borne."""

from pathlib import Path
from typing import Any

import pytest

from rlm_core import verify
from rlm_core.config import VerifySection
from rlm_core.errors import StageFailed
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.records import CaseResult, FileRef, Verdict
from rlm_core.verify import require_few_faults
from tests.samples.square import RIGHT, SQUARE, THREE_OF_FOUR, answer


def verdict(passed: int, of: int, status: Any = "failed", reason: str = "") -> Verdict:
    outcomes: list[Any] = ["passed"] * passed + ["failed"] * (of - passed)
    cases = tuple(CaseResult(outcome=outcome) for outcome in outcomes)
    return Verdict(rollout_id="r", problem_id="p", status=status, reason=reason, cases=cases, sandbox="s")


def test_the_stage_writes_verdicts_beside_their_rollouts_and_sums_them_up(tmp_path: Path) -> None:
    problems = write_jsonl(tmp_path / "problems.jsonl", [SQUARE])
    rollouts = write_jsonl(
        tmp_path / "rollouts" / "003.jsonl", [answer(text, i) for i, text in enumerate([RIGHT, THREE_OF_FOUR, "no"])]
    )
    result = verify.run(tmp_path, FileRef.of(problems), FileRef.of(rollouts), VerifySection(partial_credit=0.5))
    assert result.damage() is None
    assert Path(result.files["verdicts"].path) == tmp_path / "verdicts" / "003.jsonl"
    written = list(read_jsonl(tmp_path / "verdicts" / "003.jsonl", Verdict))
    assert [verdict.reward for verdict in written] == [1.0, 0.25, 0.0]
    figures = {name: result.figures[name] for name in ("verdicts", "passed", "infrastructure_faults", "reward")}
    assert figures == {"verdicts": 3, "passed": 1, "infrastructure_faults": 0, "reward": 1.25}
    assert result.figures["useful_groups"] == 1
    assert result.figures["sandbox"] == written[0].sandbox != "none"


def test_a_group_is_useful_when_its_answers_are_not_all_paid_the_same() -> None:
    groups = {"mixed": (0, 1), "partly": (0.25, 0.5), "solved": (1, 1), "unsolved": (0, 0)}
    verdicts = [
        verdict(0, 0).model_copy(update={"problem_id": name, "reward": float(reward)})
        for name, rewards in groups.items()
        for reward in rewards
    ]
    lost = verdict(0, 0, "infrastructure").model_copy(update={"problem_id": "solved"})
    assert verify.useful_groups([*verdicts, lost]) == 2


def test_few_faults_are_borne_and_more_stop_the_iteration() -> None:
    fine = [verdict(1, 1, "passed")] * 8
    faults = [verdict(0, 0, "infrastructure", "first of them"), verdict(0, 0, "infrastructure", "second")]
    require_few_faults([*fine, verdict(0, 1), faults[0]], max_failed_share=0.1)
    require_few_faults([], max_failed_share=0.0)
    with pytest.raises(StageFailed) as caught:
        require_few_faults([*fine, *faults], max_failed_share=0.1)
    assert str(caught.value) == (
        "verify: 2 of 10 rollouts could not be judged, verify.max_failed_share allows 0.1; the first: first of them"
    )
    with pytest.raises(StageFailed):
        require_few_faults([*fine, faults[0]], max_failed_share=0.0)
