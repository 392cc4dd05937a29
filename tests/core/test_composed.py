"""Composed verifiers: scores worked out by hand, and what of the parts is carried on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.problems import Problem
from rlm_core.records import Usage
from rlm_core.sandbox import open_sandbox
from rlm_core.verifiers import Answer, Bench, Judgement, judge
from rlm_core.verifiers.composed import Part, judge_all, judge_any, judge_weighted

EXACT = {"kind": "exact", "expected": "x"}


def part(score: float, **fields: Any) -> Part:
    """A part that passed with a score of 1, and failed with any other."""
    if score == 1:
        return Part("regex", Judgement(status="passed", score=1, **fields))
    return Part("regex", Judgement(status="failed", reason=f"only {score:g}", score=score, **fields))


def weighted(weights: list[float], pass_at: float) -> Any:
    of = [{"weight": weight, "verifier": EXACT} for weight in weights]
    return Problem.model_validate(
        {"prompt": "p", "verifier": {"kind": "weighted", "of": of, "pass_at": pass_at}}
    ).verifier


ANY: Any = None
"""What `all` and `any` are given as their spec, which they do not look at."""


@pytest.mark.parametrize(
    ("scores", "every", "some"),
    [
        ([1, 1], (1.0, ""), (1.0, "")),
        ([1, 0.25], (0.25, "1 of 2 parts failed: regex: only 0.25"), (1.0, "")),
        ([0.5, 0.25], (0.25, "2 of 2 parts failed: regex: only 0.5"), (0.5, "no part of 2 passed: regex: only 0.5")),
        ([0, 0.5], (0.0, "2 of 2 parts failed: regex: only 0"), (0.5, "no part of 2 passed: regex: only 0.5")),
        ([0], (0.0, "1 of 1 parts failed: regex: only 0"), (0.0, "no part of 1 passed: regex: only 0")),
    ],
)
def test_all_is_the_lowest_and_any_the_highest(
    scores: list[float], every: tuple[float, str], some: tuple[float, str]
) -> None:
    parts = [part(score) for score in scores]
    for result, (score, reason) in ((judge_all(ANY, parts), every), (judge_any(ANY, parts), some)):
        assert (result.score, result.reason, result.status) == (score, reason, "failed" if reason else "passed")


@pytest.mark.parametrize(
    ("weights", "scores", "pass_at", "score", "passed"),
    [
        ([1, 1], [1, 0], 1.0, 0.5, False),
        ([1, 1], [1, 0], 0.5, 1.0, True),
        ([2, 1, 1], [1, 0.5, 0], 0.75, 0.625, False),  # (2 + 0.5) / 4
        ([2, 1, 1], [1, 1, 0], 0.75, 1.0, True),
        ([0.1, 0.2, 0.7], [1, 1, 1], 1.0, 1.0, True),
        ([0.7, 0.2, 0.1], [1, 1, 0], 0.9, 1.0, True),
        ([0.1, 0.2, 0.7], [1, 1, 0], 0.3, 1.0, True),
        ([1e6, 1e-6], [0, 1], 0.5, 1e-12, False),
        ([3], [0.99], 1.0, 0.99, False),
    ],
)
def test_weighted_is_the_mean_by_weight(
    weights: list[float], scores: list[float], pass_at: float, score: float, passed: bool
) -> None:
    result = judge_weighted(weighted(weights, pass_at), [part(each) for each in scores])
    assert result.score == pytest.approx(score, rel=1e-9, abs=1e-15)
    assert (result.status == "passed") == passed == (result.reason == "")


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0.01, 1))
def test_scores_stay_in_range_and_one_belongs_to_what_passed(pairs: list[tuple[float, float]], pass_at: float) -> None:
    parts = [part(score) for _, score in pairs]
    mean = judge_weighted(weighted([weight for weight, _ in pairs], pass_at), parts)
    for result in (mean, judge_all(ANY, parts), judge_any(ANY, parts)):
        assert (result.status == "passed") == (result.reason == "")
        assert result.status == "failed" or result.score == 1.0
    assert judge_all(ANY, parts).score <= judge_any(ANY, parts).score


def test_parts_are_named_and_what_they_took_is_carried_on() -> None:
    first = part(1, output="a\n", usage=Usage(cpu_s=1.0, memory_mb=10.0, blocked=("open x",)))
    second = Part("cases", Judgement(status="failed", reason="1 of 2 cases failed", score=0.5, output="b\n"), 12.5)
    third = part(0, usage=Usage(cpu_s=0.5, memory_mb=30.0))
    result = judge_all(ANY, [first, second, third])
    assert [(case.name, case.outcome, case.detail, case.latency_ms) for case in result.cases] == [
        ("regex 1", "passed", "", 0.0),
        ("cases", "failed", "1 of 2 cases failed; score 0.500", 12.5),
        ("regex 2", "failed", "only 0", 0.0),
    ]
    assert result.output == "a\nb\n"
    assert result.usage == Usage(cpu_s=1.5, memory_mb=30.0, blocked=("open x",))


def test_every_part_is_run_even_after_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("rlm_core.verifiers.text.last_number", lambda text: seen.append(text))
    of = [EXACT, {"kind": "numeric", "expected": 1}]
    for kind in ("all", "any"):
        problem = Problem.model_validate({"prompt": "p", "verifier": {"kind": kind, "of": of}})
        judge(Answer.of("y" if kind == "all" else "x"), problem, Bench())
    assert seen == ["y", "x"]


def test_code_and_text_are_judged_together() -> None:
    short = {"kind": "regex", "pattern": r"(?s).{0,60}", "full": True}
    problem = Problem.model_validate(
        {
            "prompt": "Write double(n).",
            "entry_point": "double",
            "cases": [{"input": [n], "expected": 2 * n} for n in (1, 2)],
            "verifier": {"kind": "all", "of": [{"kind": "cases"}, {"kind": "any", "of": [short, EXACT]}]},
        }
    )
    right = "```python\ndef double(n):\n    print(n)\n    return 2 * n\n```"
    with open_sandbox() as sandbox:
        bench = Bench(sandbox)
        passed = judge(Answer.of(right), problem, bench)
        long = judge(Answer.of(right + " talk" * 20), problem, bench)
        neither = judge(Answer.of("no code"), problem, bench)
    assert (passed.status, passed.score, passed.output) == ("passed", 1.0, "1\n2\n")
    assert passed.usage.cpu_s > 0
    assert long.reason == "1 of 2 parts failed: any: no part of 2 passed: regex: the text does not match"
    assert [case.outcome for case in neither.cases] == ["failed", "passed"]
    assert neither.cases[0].detail == "no code in the answer"
