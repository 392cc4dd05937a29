"""A project's and an iteration's page: what is on them, and that what a model wrote stays text."""

import base64
import dataclasses
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_core.pages.curve import points, svg, thinned
from rlm_core.pages.iteration_page import Ended, iteration_page
from rlm_core.pages.learning_page import LEGEND, learning_page
from rlm_core.pages.suspects import suspects
from rlm_core.problems import Problem
from rlm_core.records import CaseResult, Rejection, Rollout, Usage, Verdict
from tests import tiny
from tests.samples.ended import CRASHED, PASSED, STAGES, TIMEOUT, answer, decision, entry, summary

HISTORY = [
    entry(1, "accepted", 0.2, 0.3),
    entry(2, "probation", 0.3, 0.32),
    entry(3, "rejected", 0.3, 0.1),
    entry(4, "accepted", 0.3, 0.4),
]


def test_the_curve_keeps_what_was_accepted_and_shows_every_candidate() -> None:
    curve = points(HISTORY)
    assert [(point.kept_before, point.kept, point.candidate) for point in curve] == [
        (0.2, 0.3, 0.3),
        (0.3, 0.3, 0.32),
        (0.3, 0.3, 0.1),
        (0.3, 0.4, 0.4),
    ]
    assert curve[0].low == pytest.approx(0.25)
    assert curve[0].high == pytest.approx(0.35)


def test_scores_on_an_earlier_benchmark_are_not_on_the_curve() -> None:
    history = [entry(1, "accepted", 0.7, 0.9, suite="before"), *HISTORY[1:]]
    assert [point.iteration for point in points(history)] == [2, 3, 4]


def test_the_picture_is_whole_and_has_a_mark_with_a_bar_for_each_candidate() -> None:
    root = ET.fromstring(svg(points(HISTORY)))
    marks = root.findall("{*}g")
    assert len(marks) == 4
    title, bar, dot = list(marks[3])
    assert title.text == "iteration 4: accepted, 0.400 (0.350 to 0.450)"
    assert float(bar.get("y2", "")) < float(dot.get("cy", "")) < float(bar.get("y1", ""))
    heights = [float(list(mark)[2].get("cy", "")) for mark in marks]
    assert heights[3] < heights[1] < heights[0] < heights[2], "higher scores stand higher"
    kept, *_ = root.findall("{*}polyline")
    began, first, *_ = (float(place.split(",")[1]) for place in kept.get("points", "").split())
    assert began > first, "what the first one gained is seen: 0.2 became 0.3"
    assert svg([]) == ""


def test_also_a_single_iteration_has_a_line_for_benchmark_and_holdout() -> None:
    root = ET.fromstring(svg(points(HISTORY[:1])))
    for line in root.findall("{*}polyline"):
        assert len(line.get("points", "").split()) == 2


def test_the_projects_page_says_what_came_of_it_and_lists_the_newest_first() -> None:
    page = learning_page("quick", HISTORY)
    assert page.startswith("# quick: 4 iterations, 2 accepted, 0.200 → 0.400 on the benchmark\n")
    [picture] = re.findall(r"!\[learning curve\]\(data:image/svg\+xml;base64,([^)]+)\)", page)
    assert base64.b64decode(picture).decode() == svg(points(HISTORY))
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    assert rows == ["| ", "| ---", "| 4", "| 3", "| 2", "| 1"]
    assert (
        "| 4 | accepted | 37.5% | 0.300 → 0.400 | +0.050 to +0.150 | 0.200 → 0.210 | 0.400 | 1.5 | 01-04 02:00 |"
        in page
    )
    assert LEGEND in page
    reasons = [line for line in page.splitlines() if line.startswith("- iteration ")]
    assert reasons[0] == "- iteration 4, accepted: it came out so"
    assert len(reasons) == 4


def test_without_the_picture_nothing_is_said_about_it() -> None:
    assert LEGEND not in learning_page("quick", HISTORY, picture=False)


def ended(*judged: tuple[Rollout, Verdict], problems: Sequence[Problem] = ()) -> Ended:
    return Ended(
        summary(7), decision(7, "rejected", 0.3, 0.31), problems, [r for r, _ in judged], [v for _, v in judged]
    )


def test_the_iterations_page_has_each_stage_with_its_time() -> None:
    page = iteration_page(ended())
    assert page.startswith("# Iteration 7: rejected\n\nIt came out so.\n")
    rows = {line.split(" | ")[0][2:]: line for line in page.splitlines() if line.startswith("| ")}
    assert [name for name in rows if name not in ("stage", "---")] == list(STAGES)
    assert rows["filter"] == "| filter | 1.0 | 5% | 2 (2 file) kept, 1 rejected |"
    assert re.search(r", 0 faults, 7 ms each in \S+ \|$", rows["verify"]), "nothing stands behind the longest word"
    assert rows["train"].startswith("| train | 8.0 | 40% | ")
    assert "benchmark 0.300 → 0.310" in rows["evaluate"]
    assert "were pruned" in page


def test_the_iterations_page_says_how_much_disk_is_taken() -> None:
    page = iteration_page(dataclasses.replace(ended(), run_bytes=3_400_000, project_bytes=41_200_000))
    assert "\nOn disk: 3.4 MB, the whole project 41.2 MB.\n" in page


REJECTIONS = st.lists(
    st.builds(
        Rejection,
        stage=st.sampled_from(["generate", "mutate", "filter"]),
        rule=st.sampled_from(["well_formed", "min_cases", "twin", "majority"]),
        reason=st.text(max_size=30) | st.just("| ` \n\u202e\u2028 | 9 |"),
        value=st.floats(0, 1) | st.text(max_size=10),
        limit=st.floats(0, 1) | st.just("none"),
        proposal=st.text(max_size=10),
    ),
    max_size=12,
)


@settings(max_examples=50)
@given(REJECTIONS)
def test_every_rejection_is_counted_in_the_table_of_the_iterations_page(rejections: list[Rejection]) -> None:
    page = iteration_page(dataclasses.replace(ended(), rejections=rejections))
    rows = re.findall(r"^\| (generate|mutate|filter) \| (\w+) \| (\d+) \| ", page, re.M)
    expected = Counter((rejection.stage, rejection.rule) for rejection in rejections)
    assert {(stage, rule): int(count) for stage, rule, count in rows} == expected


def test_what_came_of_the_models_own_problems_is_below_the_table_of_stages() -> None:
    def said(**figures: int) -> str:
        page = iteration_page(dataclasses.replace(ended(), summary=summary(7).model_copy(update=figures)))
        return next((line for line in page.splitlines() if line.startswith("Proposals: ")), "")

    none = "none of 5 that the model was asked for could be used, others took their place"
    assert said() == ""
    assert said(invented_asked=5) == f"Proposals: {none}."
    assert said(invented_asked=5, invented=2) == "Proposals: 2 of 5 that the model was asked for could be used."
    assert said(invented_asked=5, majorities_asked=3, majorities_found=1) == (
        f"Proposals: {none}; 1 of 3 without a solution got one by majority."
    )


def test_samples_are_the_problems_whose_answers_differ_with_the_best_and_the_worst() -> None:
    easy, mixed = tiny.problem(1, 1), tiny.problem(2, 2)
    page = iteration_page(
        ended(
            *(answer(easy, index, "always right", 1.0) for index in range(2)),
            answer(mixed, 0, "the best", 1.0),
            answer(mixed, 1, "the worst", 0.0, reason="wrong answers"),
            problems=[easy, mixed],
        )
    )
    first = page.split("### ")[1]
    assert first.startswith("`f`, 1 of 2 passed")
    assert "adds 2 to n, exercise 2" in first
    assert re.search(r"the best +\| the worst", first)
    assert re.search(r"paid 1\.00, passed +\| paid 0\.00, failed: wrong answers", first)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("refused although its tests passed", {"cases": (PASSED, PASSED), "reason": "the tests were altered"}),
        ("tried what the sandbox blocks", {"cases": (TIMEOUT,), "usage": Usage(blocked=("socket.connect",))}),
        ("ran out of time", {"cases": (PASSED, TIMEOUT)}),
        ("ended its process", {"cases": (CRASHED, TIMEOUT)}),
        (None, {"cases": (PASSED, CaseResult(outcome="failed"))}),
        (None, {"cases": (CaseResult(outcome="not_run"),), "reason": "no code"}),
        (None, {}),
    ],
)
def test_answers_that_a_person_should_look_at_are_found(kind: str | None, found: dict[str, object]) -> None:
    rollout, verdict = answer(tiny.problem(1), 0, "x", 0.0, **found)
    assert suspects([verdict]) == ({} if kind is None else {kind: [verdict]})
    page = iteration_page(ended((rollout, verdict), problems=[tiny.problem(1)]))
    assert ("### `f` " + str(kind) in page) == (kind is not None)
    assert ("| 1 |" in page) == (kind is not None)


def test_what_a_model_wrote_cannot_get_out_of_its_place() -> None:
    evil = "```\n# I am accepted\n<script>alert(1)</script>"
    found = {"cases": (TIMEOUT,), "reason": "`|` <b>\n# no"}
    page = iteration_page(ended(answer(tiny.problem(1), 0, evil, 0.0, **found), problems=[tiny.problem(1)]))
    outside = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", page)
    assert "accepted\n<script>" not in outside
    assert "script" not in outside
    assert "\n# no" not in outside


def test_a_long_curve_is_drawn_up_to_its_end_and_no_larger_than_a_shorter_one() -> None:
    curve = points(HISTORY)
    long = [dataclasses.replace(curve[-1], iteration=number) for number in range(1, 5_001)]
    drawn = thinned(long)
    assert (drawn[-1], len(drawn)) == (long[-1], 250)
    assert {later.iteration - earlier.iteration for earlier, later in pairwise(drawn)} == {20}
    assert thinned(long[:250]) == long[:250]
    assert len(svg(long)) < 1.2 * len(svg(long[:250]))
