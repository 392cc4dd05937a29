"""Verifiers of text: what they say, worked out by hand; and that no answer makes them raise, hang or swell."""

import json
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem
from rlm_core.sandbox import Limits
from rlm_core.verifiers import Answer, Bench, Judgement, judge
from rlm_core.verifiers.scorer import Scorer
from rlm_core.verifiers.text import LONGEST_CHARS, last_number

LIMITS = Limits(case_s=0.5, memory_mb=256)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Scorer(LIMITS) as scorer:
        yield Bench(limits=LIMITS, scorer=scorer)


def problem(**verifier: Any) -> Problem:
    return Problem.model_validate({"prompt": "p", "verifier": verifier})


def judged(bench: Bench, text: str, **verifier: Any) -> Judgement:
    return judge(Answer.of(text), problem(**verifier), bench)


# --------------------------------------------------------------------------------------------------------------- regex


@pytest.mark.parametrize(
    ("pattern", "full", "text", "passed"),
    [
        (r"\d{3}", False, "it is 123.", True),
        (r"\d{3}", False, "it is 12.", False),
        (r"\d{3}", True, " 123\n", True),
        (r"\d{3}", True, "it is 123", False),
        (r"(?i)yes", False, "YES", True),
        (r"^b$", False, "a\nb\nc", False),
        (r"(?m)^b$", False, "a\nb\nc", True),
        (r"(?e)(?:colour){e<=1}", False, "color", True),  # what `regex` has and `re` has not
        (r"", False, "", True),
        (r"x", False, "", False),
    ],
)
def test_an_expression_is_searched_for_or_must_match_all(
    bench: Bench, pattern: str, full: bool, text: str, passed: bool
) -> None:
    result = judged(bench, text, kind="regex", pattern=pattern, full=full)
    assert (result.status, result.score) == (("passed", 1.0) if passed else ("failed", 0.0))
    assert result.reason == ("" if passed else "the text does not match")


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(.*?,){30}x", r"(x+x+)+y|^(a|b|ab)*c", r"(?e)(?:a{3,60}){e<9}b"]
)
@pytest.mark.parametrize("full", [True, False])
def test_no_expression_takes_longer_than_its_time(bench: Bench, pattern: str, full: bool) -> None:
    started = time.process_time()
    result = judged(bench, "a," * 5_000 + "a" * 40 + "!", kind="regex", pattern=pattern, full=full)
    again = judged(bench, "a" * 40 + "!", kind="regex", pattern=pattern, full=full)
    assert time.process_time() - started < 4 * LIMITS.case_s
    assert {result.status, again.status} == {"failed"}


def test_a_time_that_is_up_is_a_failure_with_its_reason(bench: Bench) -> None:
    result = judged(bench, "a" * 60 + "!", kind="regex", pattern=r"^(a|aa)+$")
    assert (result.status, result.reason) == ("failed", "the expression was not done after 0.5 s")
    assert result.usage.ran_out_of_clock  # so it is judged again, alone


# --------------------------------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize(
    ("expected", "ignore_case", "text", "reason"),
    [
        ("hammer", False, "hammer", ""),
        (" hammer\n", False, "\thammer ", ""),
        ("hammer", False, "Hammer", "the text is 'Hammer'"),
        ("straße", True, "STRASSE", ""),
        ("a b", False, "a  b", "the text is 'a  b'"),
        ("", False, " \n", ""),
        ("x", False, "\ud800\x00", r"the text is '\\ud800\\x00'"),
    ],
)
def test_a_text_is_the_expected_one_or_shown(
    bench: Bench, expected: str, ignore_case: bool, text: str, reason: str
) -> None:
    result = judged(bench, text, kind="exact", expected=expected, ignore_case=ignore_case)
    assert result.reason.replace("\\\\", "\\") == reason.replace("\\\\", "\\")
    assert result.status == ("failed" if reason else "passed")


# ------------------------------------------------------------------------------------------------------------- numeric


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("The answer is 42.", 42),
        ("The answer is...42", 42),
        ("first 1, then 2", 2),
        ("-5", -5),
        ("+5", 5),
        ("x = \u22125", -5),
        ("10-5", 5),
        ("(3)-2", 2),
        ("3 - 4", 4),
        ("1,234,567.5 in all", 1234567.5),
        ("1,2,3", 3),
        ("1,23", 23),
        ("12,3456", 3456),
        ("1.5e-3", 0.0015),
        ("6.02E23", 6.02e23),
        ("2e", 2),
        (".5", 0.5),
        ("1..5", 5),
        ("3/4", 0.75),
        ("-3 / 4.", -0.75),
        ("1/2/2024", 2024),
        ("3/4.5", 4.5),
        ("50%", 50),
        ("$1,000 or 5km", 5),
        (r"\boxed{42}", 42),
        ("the 2nd", 2),
        ("1.2.3", 1.2),
        ("x2 and H2O", None),
        ("nan, inf, -Infinity", None),
        ("\u0664\u0662", None),
        ("", None),
    ],
)
def test_the_last_number_is_found(text: str, number: float | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("text", ["1e999", "-1e999", "9" * 400, "1/0", "0/0", "1/" + "9" * 400, "9" * 400 + "/1"])
def test_what_no_float_can_hold_equals_nothing(bench: Bench, text: str) -> None:
    assert math.isinf(last_number(text) or 0)
    result = judged(bench, text, kind="numeric", expected=1e308, tolerance=1.0)
    assert (result.status, result.score) == ("failed", 0.0)


@pytest.mark.parametrize(
    ("expected", "tolerance", "text", "passed"),
    [
        (1234.5, 1e-6, "1,234.50", True),
        (0.3, 1e-6, "0.30000000000000004", True),
        (0.0, 1e-6, "1e-7", True),
        (0.0, 0.0, "1e-7", False),
        (100.0, 0.01, "101", True),
        (100.0, 0.01, "102", False),
        (3.0, 1e-6, "it is not 3 but 4", False),
        (3.0, 1e-6, "three", False),
    ],
)
def test_a_number_is_compared_within_its_tolerance(
    bench: Bench, expected: float, tolerance: float, text: str, passed: bool
) -> None:
    result = judged(bench, text, kind="numeric", expected=expected, tolerance=tolerance)
    assert (result.status == "passed") == passed
    assert bool(result.reason) != passed


@pytest.mark.parametrize(
    "piece", ["9", "1,", "1,111,", ".", "1/1 ", "-", "1e", ",111", "1 /", "1/1.1", "1/9", "1.", "e", "\u2212"]
)
def test_numbers_are_found_in_linear_time(piece: str) -> None:
    text = "1/" + piece * (LONGEST_CHARS // len(piece) - 4) + ".5"
    started = time.process_time()
    last_number(text)
    assert time.process_time() - started < 3


# --------------------------------------------------------------------------------------------------------- JSON Schema

POINT = {
    "type": "object",
    "required": ["x"],
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"x": 1}', ""),
        ('```json\n{"x": 1}\n```', ""),
        ('Here:\n```\n{"x": 1}\n```\nDone.', ""),
        ('```python\nx = 1\n```\n```json\n{"x": 1}\n```', ""),
        ('```text\n{"x": 1}', ""),
        ('{"x": 1.0}', ""),  # JSON Schema counts it among the integers
        ('{"x": true}', "is not valid: $.x: True is not of type 'integer'"),
        ('{"y": 1}', "is not valid: $: 'x' is a required property"),
        ("[]", "is not valid: $: [] is not of type 'object'"),
        ('Here: {"x": 1}', "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"x": 1} and more', "is not JSON: Extra data: line 1 column 10 (char 9)"),
        ('{"x": NaN}', "is not JSON: NaN is no JSON number"),
        ('{"x": -Infinity}', "is not JSON: -Infinity is no JSON number"),
        ('{"x": 1e999}', "is not JSON: 1e999 is too large"),
        ("{'x': 1}", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "is not JSON: it nests too deeply"),
        ("[" * 62 + "]" * 62, "is JSON nested deeper than 60"),
    ],
)
def test_json_is_found_and_validated(bench: Bench, text: str, reason: str) -> None:
    result = judged(bench, text, kind="json_schema", json_schema=POINT)
    assert result.reason == reason
    assert result.score == float(not reason)


def test_the_draft_is_2020_12_unless_the_schema_names_another(bench: Bench) -> None:
    first_is_null = {"prefixItems": [{"type": "null"}]}  # new in 2020-12, and unknown to draft 7
    older = first_is_null | {"$schema": "http://json-schema.org/draft-07/schema#"}
    statuses = [
        judged(bench, "[1]", kind="json_schema", json_schema=schema).status for schema in (first_is_null, older)
    ]
    assert statuses == ["failed", "passed"]


TREE = {
    "$ref": "#/$defs/t",
    "$defs": {"t": {"anyOf": [{"items": {"$ref": "#/$defs/t"}, "minItems": 1}] * 4, "not": {"const": 0}}},
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "^(a+)+$"}, json.dumps("a" * 60 + "!")),
        ({"patternProperties": {"^(a+)+$": {}}}, json.dumps({"a" * 60 + "!": 1})),
        (TREE, "[" * 50 + "0" + "]" * 50),
    ],
    ids=["pattern", "property names", "exponential references"],
)
def test_no_schema_takes_longer_than_its_time(bench: Bench, schema: dict[str, Any], text: str) -> None:
    started = time.monotonic()
    result = judged(bench, text, kind="json_schema", json_schema=schema)
    assert (result.status, result.reason) == ("failed", "it took too long to judge")
    assert time.monotonic() - started < 10
    assert judged(bench, "1", kind="json_schema", json_schema={}).status == "passed"  # the next answer is judged


def test_nothing_that_a_schema_does_with_an_answer_raises(bench: Bench) -> None:
    huge = "1" + "0" * 400
    assert judged(bench, huge, kind="json_schema", json_schema={"multipleOf": 0.1}).reason.startswith(
        "judging it raised"
    )
    endless = {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert judged(bench, "[1]", kind="json_schema", json_schema=endless).reason == "it nests too deeply to be judged"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "wat"}, "its schema is none: $.type: 'wat' is not valid"),
        ({"pattern": "("}, "its schema is none: $.pattern"),
        (
            {"$ref": "http://example.invalid/s"},
            "its schema refers to 'http://example.invalid/s'; only references within",
        ),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "its schema refers to 'other.json#/a'"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "its schema refers to '#/$defs/b', which is not in it"),
        ({"$ref": "#"}, "its schema refers to itself without end"),
        ({"$schema": "http://example.invalid/draft"}, "its schema is for 'http://example.invalid/draft'"),
        ({"$schema": {}}, "preparing it raised TypeError"),
    ],
)
def test_a_schema_that_is_none_is_the_problems_fault(bench: Bench, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProblemError) as caught:
        judged(bench, "1", kind="json_schema", json_schema=schema)
    assert str(caught.value).startswith(reason)


# ---------------------------------------------------------------------------------------------------------- all of them

TEXT_VERIFIERS: list[dict[str, Any]] = [
    {"kind": "regex", "pattern": r"\d+ (apples|pears)"},
    {"kind": "regex", "pattern": r"(?i)[a-z]+", "full": True},
    {"kind": "exact", "expected": "42", "ignore_case": True},
    {"kind": "numeric", "expected": 42},
    {"kind": "json_schema", "json_schema": POINT},
    {
        "kind": "json_schema",
        "json_schema": {"multipleOf": 0.01, "pattern": r"^\d+$", "uniqueItems": True, "format": "date"},
    },
]
_HOSTILE = st.one_of(
    st.text(st.characters(categories=None), max_size=200),
    st.text("0123456789+-/.,eE ", max_size=60),
    st.text('{}[]",:0123456789e-`json\n', max_size=80),
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists).map(json.dumps),
)


# Threads that earlier tests have left, such as Prefect's, may draw from the global generator in the meantime.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("verifier", TEXT_VERIFIERS, ids=lambda verifier: verifier["kind"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_HOSTILE)
def test_no_answer_makes_a_verifier_raise(bench: Bench, verifier: dict[str, Any], text: str) -> None:
    result = judged(bench, text, **verifier)
    assert (result.status == "passed") == (result.reason == "") == (result.score == 1.0)
    result.model_dump_json()  # can be written, whatever the reason quotes
    assert result.reason.isprintable()


@pytest.mark.parametrize("verifier", TEXT_VERIFIERS[:2] + TEXT_VERIFIERS[3:], ids=lambda verifier: verifier["kind"])
def test_a_text_that_is_too_long_is_not_looked_at(bench: Bench, verifier: dict[str, Any]) -> None:
    result = judged(bench, "1" * (LONGEST_CHARS + 1), **verifier)
    assert result.reason == "the answer is longer than 1000000 characters"


@pytest.mark.parametrize(
    "verifier",
    [
        {"kind": "regex", "pattern": "("},
        {"kind": "numeric", "expected": "inf"},
        {"kind": "numeric", "expected": "nan"},
        {"kind": "numeric", "expected": 1, "tolerance": -1},
        {"kind": "json_schema", "json_schema": []},
        {"kind": "weighted", "of": [{"weight": "inf", "verifier": {"kind": "exact", "expected": "x"}}]},
        {"kind": "all", "of": []},
    ],
)
def test_a_verifier_that_makes_no_sense_is_refused(verifier: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        problem(**verifier)
