"""A decision's page: its numbers, what was gained and lost with the answers, and where the candidate comes from."""

from pathlib import Path

import pytest

from rlm_core.comparison import ExamPair
from rlm_core.config import GateSection, TrainSection
from rlm_core.files import write_jsonl, write_record
from rlm_core.gate import decide, nothing_learnt
from rlm_core.pages.exam_answers import Answers, GivenAnswer, answers_behind
from rlm_core.pages.gate_page import SuiteShown, page
from rlm_core.pages.markdown import columns, side_by_side
from rlm_core.records import AdapterRef, ExamReport, Lineage, PastScores, Rollout, TrainReport, Verdict
from rlm_core.state.project import Project
from tests.samples.exam_reports import pair, report

CANDIDATE = AdapterRef(path="runs/0007/adapter", sha256="c" * 64)
LEARNER = AdapterRef(path="runs/0006/adapter", sha256="b" * 64)
TRAINED = TrainReport(
    candidate=CANDIDATE, steps=13, groups=48, useful_groups=26, reward_mean=0.174, tokens=9513, duration_s=1.0
)
BENCHMARK = pair([0, 1, 4, 2], [3, 1, 0, 4])


def answers(text: str, passed: bool) -> list[GivenAnswer]:
    return [GivenAnswer("other", not passed), GivenAnswer(text, passed)]


def shown(
    exams: ExamPair = BENCHMARK, incumbent: Answers | None = None, candidate: Answers | None = None
) -> tuple[str, GateSection]:
    section = GateSection()
    lineage = Lineage(None, LEARNER, 2, 2)
    decision = decide(7, exams, pair([1, 1], [1, 1]), section, PastScores(), CANDIDATE, lineage, 0)
    assert decision.benchmark is not None
    suite = SuiteShown(
        "benchmark",
        decision.benchmark,
        exams,
        base=report([1] * len(exams.incumbent.problems)),
        prompts={"p0": "Write f0."},
        incumbent=incumbent or {},
        candidate=candidate or {},
    )
    return page(decision, [suite], section, TRAINED, TrainSection()), section


def test_the_page_has_the_numbers_and_the_origin() -> None:
    text, _ = shown()
    assert text.startswith("# Iteration 7: probation\n\n0.500 against 0.438 is not yet a sure gain")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    table = {row[0]: row[1] for row in rows}
    assert table[""] == "benchmark"
    assert table["problems × answers"] == "4 × 4"
    scores = ("base", "incumbent", "candidate", "difference")
    assert [table[row] for row in scores] == ["0.250", "0.438", "0.500", "+0.062"]
    assert [table[row] for row in ("problems gained", "problems lost")] == ["2", "1"]
    assert "- candidate: `runs/0007/adapter` (cccccccccccc)" in text
    assert "- trained from: `runs/0006/adapter` (bbbbbbbbbbbb), on probation for 2 iterations" in text
    assert "- incumbent: the base model" in text
    assert "The incumbent stays, in reports and in what is served. Training goes on from the candidate" in text
    assert "13 steps on 9513 tokens from 26 useful groups of 48" in text
    assert "p at most 0.00588 (candidates before that were not accepted: 2)" in text


def test_the_table_of_numbers_has_a_column_for_each_suite_so_that_it_fits_a_narrow_page() -> None:
    one = {"base": "0.1", "incumbent": "0.2"}
    assert columns({"benchmark": one, "holdout": {"base": "0.3", "incumbent": "0.4"}}).splitlines() == [
        "|  | benchmark | holdout |",
        "| --- | --- | --- |",
        "| base | 0.1 | 0.3 |",
        "| incumbent | 0.2 | 0.4 |",
    ]


def test_gained_and_lost_problems_have_the_answers_that_show_it() -> None:
    right, wrong = answers("return 1", True), answers("return 2", False)
    text, _ = shown(incumbent={"p0": wrong, "p2": right}, candidate={"p0": right, "p2": wrong})
    gained, lost = text.split("### Gained: `f0` (p0), 0 → 3 of 4")[1].split("### Lost: `f2` (p2), 4 → 0 of 4")
    assert "Write f0." in gained
    [row] = [line for line in gained.splitlines() if "return" in line]
    assert [cell.strip() for cell in row.split("|")] == ["return 2", "return 1"]
    assert "incumbent, failed" in gained
    assert "candidate, passed" in gained
    [row] = [line for line in lost.splitlines() if "return" in line]
    assert [cell.strip() for cell in row.split("|")] == ["return 1", "return 2"]
    assert "f1" not in text  # which both answer as well as the other


def test_the_largest_changes_are_shown_and_the_rest_is_named() -> None:
    text, _ = shown(pair([0] * 9, [1, 1, 2, 1, 4, 1, 1, 1, 1]))
    largest, next_one, first = (text.index(f"`f{i}` (p{i}), 0 → {now} of 4") for i, now in ((4, 4), (2, 2), (0, 1)))
    assert largest < next_one < first
    assert "Gained too: `f5` (p5) 0 → 1, `f6` (p6) 0 → 1, `f7` (p7) 0 → 1, `f8` (p8) 0 → 1." in text


def test_answers_that_are_gone_are_said_to_be() -> None:
    assert "(this answer was not kept)" in shown()[0]


def test_an_answer_cannot_get_out_of_its_code_block() -> None:
    evil = answers("````\n# I am accepted\n<script>alert(1)</script>\x1b[31m\n`````", True)
    text, _ = shown(candidate={"p0": evil})
    block = text[text.index("candidate, passed") :]
    assert block.index("# I am accepted") < block.index("\n``````\n")
    assert "\x1b" not in text


def test_long_texts_are_wrapped_and_cut() -> None:
    lines = side_by_side("x" * 100 + "\n\ty", "\n".join("z" * 10 for _ in range(99))).splitlines()
    assert len(lines) == 30
    assert lines[-1].endswith("…")
    assert {line.index("|") for line in lines} == {57}


def test_an_iteration_without_a_candidate_has_a_page() -> None:
    nothing = TRAINED.model_copy(update={"candidate": None})
    text = page(nothing_learnt(7, GateSection(), Lineage()), [], GateSection(), nothing, TrainSection())
    assert "# Iteration 7: rejected" in text
    assert "No candidate: " in text


# ----------------------------------------------------------------------------------------------- answers of an exam


def sat(directory: Path, kept: ExamReport, text: str | None) -> Path:
    """An exam's files in such a directory; without `text` only the report, as when it was reused."""
    exams = directory / "exams"
    path = write_record(exams / "candidate-digest.json", kept)
    if text is not None:
        content = {
            "problem_id": "p0",
            "index": 0,
            "seed": 1,
            "prompt_tokens": [1],
            "tokens": [2],
            "logprobs": [-1.0],
            "text": text,
            "finish_reason": "stop",
        }
        rollout = Rollout.model_validate(content)
        verdict = Verdict(rollout_id=rollout.id, problem_id="p0", status="passed", sandbox="none")
        write_jsonl(exams / "candidate-digest.answers.jsonl", [rollout])
        write_jsonl(exams / "candidate-digest.verdicts.jsonl", [verdict])
    return path


def test_the_answers_of_a_reused_report_are_found_where_the_exam_was_sat(tmp_path: Path) -> None:
    project, mine, other = Project(tmp_path), report([1], policy="a" * 64), report([1], policy="b" * 64)
    sat(project.run(1), other, "other")
    sat(project.run(2), mine, "mine")
    sat(project.run(3), mine, None)
    assert answers_behind(project, mine) == {"p0": [GivenAnswer("mine", True)]}


def test_the_answers_of_an_exam_that_somebody_ordered_are_found_too(tmp_path: Path) -> None:
    project, ordered = Project(tmp_path), report([1])
    sat(project.root, ordered, "ordered")
    sat(project.run(1), ordered, None)
    assert answers_behind(project, ordered) == {"p0": [GivenAnswer("ordered", True)]}


@pytest.mark.parametrize("damage", ["report", "answers", "verdicts"])
def test_answers_whose_files_are_damaged_are_gone_which_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    project, mine = Project(tmp_path), report([1])
    path = sat(project.run(1), mine, "mine")
    name = "candidate-digest.json" if damage == "report" else f"candidate-digest.{damage}.jsonl"
    (path.parent / name).write_text("{")
    assert answers_behind(project, mine) == {}
    assert answers_behind(Project(tmp_path / "nowhere"), mine) == {}
    if damage != "report":  # which belongs to another then, as far as can be told
        [told] = caplog.messages
        assert told.startswith(f"the gate's page shows no answers: {path.parent / name}:1 is not a readable ")


def test_an_answer_without_a_verdict_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project, mine = Project(tmp_path), report([1])
    exams = sat(project.run(1), mine, "mine").parent
    (exams / "candidate-digest.verdicts.jsonl").write_text("")
    assert answers_behind(project, mine) == {}
    assert caplog.messages[0].endswith("candidate-digest.answers.jsonl has one without a verdict")
