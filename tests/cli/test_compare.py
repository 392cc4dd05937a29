"""`rlm compare`: two exams' reports side by side, in either order."""

import json
from pathlib import Path

from rlm_core.files import write_record
from tests.command import Rlm, assert_refused, exam
from tests.conftest import MakeConfig
from tests.samples.exam_reports import report as made_up


def test_two_reports_are_compared_in_both_directions(
    rlm: Rlm,
    make_config: MakeConfig,
    suite: str,
    tmp_path: Path,
) -> None:
    config = make_config()
    for policy in ("reference", "empty"):
        arguments = ("-p", policy, "-s", suite, "-o", str(tmp_path / f"{policy}.json"))
        assert exam(rlm, config, *arguments)["pass_at"]["1"] == (policy == "reference")
    forth = json.loads(rlm("compare", "--json", "empty.json", "reference.json").out)
    assert (forth["difference"], forth["better"], forth["worse"]) == (1.0, 16, 0)
    assert forth["p_value"] < 0.001
    assert (len(forth["better_on"]), forth["worse_on"]) == (16, [])
    assert len({flip["problem_id"] for flip in forth["better_on"]}) == 16  # all of them are called f
    assert {(flip["entry_point"], flip["a"], flip["b"]) for flip in forth["better_on"]} == {("f", 0, 1)}
    back = json.loads(rlm("compare", "--json", "reference.json", "empty.json").out)
    assert (back["difference"], back["better"], back["worse"], back["p_value"]) == (-1.0, 0, 16, 1.0)
    shown = rlm("compare", "empty.json", "reference.json").out
    assert "0.000 → 1.000" in shown
    assert " ".join(shown.split()).count(" each A empty (no model) B reference (no model) pass@1") == 1
    first = forth["better_on"][0]["problem_id"][:8]
    assert f"on 16 problems: f ({first}), f (" in shown


def test_reports_that_give_pass_at_other_k_are_compared_on_those_of_both(rlm: Rlm, tmp_path: Path) -> None:
    for name, pass_at in (("a", {1: 0.25, 2: 0.5, 4: 1.0}), ("b", {1: 0.5, 4: 1.0})):
        write_record(tmp_path / f"{name}.json", made_up([1, 2], pass_at=pass_at))
    shown = rlm("compare", "a.json", "b.json")
    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines() if "pass@" in line.split()[0]] == ["pass@1", "pass@4"]


def test_reports_on_different_exams_are_not_compared(rlm: Rlm, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 5)):
        write_record(tmp_path / f"{name}.json", made_up([1, 2], seed=seed))
    assert_refused(rlm("compare", "a.json", "b.json"), 2, "a.json and b.json are not on the same exam: seed is")
    assert_refused(rlm("compare", "a.json", "c.json"), 2, "c.json: cannot be read: No such file")
