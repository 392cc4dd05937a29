"""Nothing is decided on exams that are missing, empty or incomplete, and what is decided has its page."""

from pathlib import Path
from typing import Any

import pytest

from rlm_core.conclude import decide_by_rule, settled
from rlm_core.config import Config
from rlm_core.errors import StageFailed
from rlm_core.files import write_record
from rlm_core.iteration import Iteration
from rlm_core.model.adapters import WEIGHTS
from rlm_core.records import AdapterRef, ExamReport, FileRef, PolicyRef, StageResult, TrainReport
from rlm_core.state.ledger import Base, open_ledger
from rlm_core.state.project import Project
from tests import tiny
from tests.samples.exam_reports import report

BASE = PolicyRef(base="base", fingerprint="f")
CANDIDATE = AdapterRef(path="candidate", sha256="c" * 64)
WHO = ("base", "incumbent", "candidate")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    suites = {
        name: tiny.write_problems(tmp_path / f"{name}.jsonl", tiny.problems(3, i))
        for i, name in enumerate(("benchmark", "holdout"))
    }
    return Config.parse({"project": str(tmp_path / "project"), "evaluate": suites})


@pytest.fixture
def iteration(config: Config) -> Iteration:
    project = Project(Path(config.project))
    with open_ledger(project.ledger) as ledger:
        ledger.begin(Base(name="base", fingerprint="f"), None)
    return Iteration(
        number=1,
        project=config.project,
        directory=str(project.run(1)),
        base=BASE,
        incumbent=BASE,
        learner=BASE,
        waited=0,
        tries=0,
        seed=0,
        corpus=None,
        started=0.0,
    )


def trained(tmp_path: Path) -> StageResult:
    made = TrainReport(
        candidate=CANDIDATE, steps=1, groups=1, useful_groups=1, reward_mean=0.5, tokens=1, duration_s=1.0
    )
    path = write_record(tmp_path / "train.json", made)
    weights = FileRef(path=f"{CANDIDATE.path}/{WEIGHTS}", sha256=CANDIDATE.sha256)
    return StageResult(files={"report": FileRef.of(path), WEIGHTS: weights})


def exams(tmp_path: Path, config: Config, **other: ExamReport) -> list[StageResult]:
    """Reports of all on both suites, the candidate being right four times in four and the others once."""
    results = []
    for suite in (config.evaluate.benchmark, config.evaluate.holdout):
        for who in WHO:
            made = other.get(who) or report([4 if who == "candidate" else 1] * 12)
            path = write_record(tmp_path / f"{Path(suite).stem}-{who}.json", made)
            results.append(StageResult(files={"report": FileRef.of(path)}, figures={"who": who, "suite": suite}))
    return results


def test_complete_exams_are_decided_on(tmp_path: Path, config: Config, iteration: Iteration) -> None:
    decision, page = decide_by_rule(iteration, config, trained(tmp_path), exams(tmp_path, config))
    assert decision.outcome == "accepted"
    assert page == (Path(iteration.directory) / "gate.md").read_text()
    assert "# Iteration 1: accepted" in page


@pytest.mark.parametrize(
    ("right", "outcome"), [(0, "rejected"), (1, "probation"), (4, "accepted")], ids=["worse", "equal", "better"]
)
def test_where_the_benchmark_makes_no_accept_nobody_need_sit_the_holdout(
    tmp_path: Path, config: Config, iteration: Iteration, right: int, outcome: str
) -> None:
    given = exams(tmp_path, config, candidate=report([right] * 12))
    on_benchmark = given[: len(WHO)]
    assert settled(iteration, config, on_benchmark) is (outcome != "accepted")
    assert decide_by_rule(iteration, config, trained(tmp_path), given)[0].outcome == outcome
    if outcome == "accepted":
        with pytest.raises(StageFailed, match="holdout is missing; nothing is decided"):
            decide_by_rule(iteration, config, trained(tmp_path), on_benchmark)
    else:
        decision, page = decide_by_rule(iteration, config, trained(tmp_path), on_benchmark)
        assert (decision.outcome, decision.holdout) == (outcome, None)
        assert "not sat, as it can veto an accept only" in page


def lost_one(complete: ExamReport) -> ExamReport:
    first, *rest = complete.problems
    return complete.model_copy(update={"problems": (first.model_copy(update={"samples": 3}), *rest)})


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (report([]), "empty or incomplete"),
        (lost_one(report([4] * 12)), "empty or incomplete"),
        (report([4] * 11), "not of the same exam"),
        (report([4] * 12, seed=1), "not of the same exam"),
    ],
    ids=["empty", "partial", "fewer", "other-seed"],
)
def test_an_exam_that_does_not_count_is_no_accept(
    tmp_path: Path, config: Config, iteration: Iteration, who: str, made: ExamReport, reason: str
) -> None:
    other: dict[str, Any] = {who: made}
    with pytest.raises(StageFailed, match=reason):
        decide_by_rule(iteration, config, trained(tmp_path), exams(tmp_path, config, **other))


@pytest.mark.parametrize("missing", range(6))
def test_a_missing_exam_is_no_accept(tmp_path: Path, config: Config, iteration: Iteration, missing: int) -> None:
    given = exams(tmp_path, config)
    with pytest.raises(StageFailed, match="is missing; nothing is decided"):
        decide_by_rule(iteration, config, trained(tmp_path), given[:missing] + given[missing + 1 :])
