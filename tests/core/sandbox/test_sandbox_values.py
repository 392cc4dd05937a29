"""The wire's values: they arrive as they left, are told apart strictly, and nothing that comes can hurt the parent."""

import contextlib
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_core.sandbox.inside.wire import EXACT_INT, Encoder, NotPlain, decode
from rlm_core.sandbox.text import readable
from rlm_core.verifiers.values import NotJson, is_valid, same, show, to_json

NODES, DEPTH = 10_000, 30
FEW = settings(max_examples=60)
ENCODER = Encoder(NODES, DEPTH, size_mb=1)
encode = ENCODER.encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, -1, 2**53, -(2**53), 2**53 - 1])
    | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])
    | st.text()
)
others = st.binary() | st.complex_numbers(allow_nan=False)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
plain_values = st.recursive(
    scalars | others,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.frozensets(scalars, max_size=4)
        | st.sets(scalars, max_size=4)
    ),
    max_leaves=12,
)
anything_in_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(list("ifcbltszd")),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


def strictly_equal(a: Any, b: Any) -> bool:
    """What `same` has to say without a tolerance, written so slowly that it can be seen to be right."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(strictly_equal(*pair) for pair in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(strictly_equal(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def identical(a: Any, b: Any) -> bool:
    """The same value of the same type, NaN and order of keys included; sets have no order."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(identical(*pair) for pair in zip(a, b, strict=True))
    if isinstance(a, dict):
        return identical(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return repr(a) == repr(b)


def through_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


@given(plain_values)
@FEW
def test_values_arrive_as_they_left(value: Any) -> None:
    tree = through_json(encode(value))
    assert is_valid(tree, NODES, DEPTH)
    assert identical(decode(tree), value)


@given(json_values, json_values)
@FEW
def test_comparison_agrees_with_the_obvious_one(a: Any, b: Any) -> None:
    assert same(through_json(encode(a)), encode(a))
    assert same(through_json(encode(a)), encode(b)) == strictly_equal(a, b)


@given(plain_values, json_values)
@FEW
def test_only_json_values_can_be_right(got: Any, expected: Any) -> None:
    assert same(encode(got), encode(expected)) == strictly_equal(got, expected)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        *[
            (True, 1),
            (1, True),
            (1.0, 1),
            (1, 1.0),
            (0, False),
            ("1", 1),
            (None, False),
            ([], None),
            ({}, []),
            ("", []),
        ],
        *[({1: "a"}, {"1": "a"}), ([1, 2], [2, 1]), ({1, 2}, [1, 2]), (b"a", "a"), ([True], [1])],
        *[({"a": 1.0}, {"a": 1}), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2})],
    ],
)
def test_types_are_told_apart(got: Any, expected: Any) -> None:
    assert not same(encode(got), encode(expected))
    assert not same(encode(got), encode(expected), tolerance=0.5)
    assert not same(encode([got]), encode([expected]), unordered=True)


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "equal"),
    [
        (0.1 + 0.2, 0.3, 0.0, False),
        (0.1 + 0.2, 0.3, 1e-9, True),
        (1.001, 1.0, 1e-3, True),
        (1.01, 1.0, 1e-3, False),
        (1e12 + 1, 1e12, 1e-9, True),
        (5e-10, 0.0, 1e-9, True),
        (math.inf, 1e308, 0.5, False),
        (math.nan, math.nan, 0.0, True),
        (math.nan, 1.0, 0.5, False),
        (-0.0, 0.0, 0.0, True),
        ([{"a": (1.0000001,)}], [{"a": [1.0]}], 1e-6, True),
    ],
)
def test_floats_are_compared_within_the_tolerance(got: Any, expected: Any, tolerance: float, equal: bool) -> None:
    assert same(encode(got), encode(expected), tolerance) is equal


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "equal"),
    [
        ([2, 1, 1], [1, 2, 1], 0.0, True),
        ([2, 2, 1], [1, 2, 1], 0.0, False),
        ((3, 1), [1, 3], 0.0, True),
        ([[1, 2]], [[2, 1]], 0.0, False),
        ([{"b": 1, "a": 2}, "x"], ["x", {"a": 2, "b": 1}], 0.0, True),
        ([-0.0, 1.0], [1.0, 0.0], 0.0, True),
        ([1.0, 2.0], [2.0000001, 0.9999999], 1e-6, True),
        ([1.0, 1.0], [1.0, 2.0], 1e-6, False),
        ({1, 2}, [1, 2], 0.0, False),
        (3, 3, 0.0, True),
    ],
)
def test_unordered_lists_are_compared_as_multisets(got: Any, expected: Any, tolerance: float, equal: bool) -> None:
    assert same(encode(got), encode(expected), tolerance, unordered=True) is equal


@given(anything_in_json)
@FEW
def test_no_tree_can_hurt_the_parent(tree: Any) -> None:
    if is_valid(tree, NODES, DEPTH):
        assert len(show(tree)) <= 200
        same(tree, encode([1, {"a": 2.0}]), 0.1, unordered=True)
        with contextlib.suppress(NotJson):
            json.dumps(to_json(tree)).encode()


@given(anything_in_json)
@FEW
def test_valid_trees_are_encodings(tree: Any) -> None:
    if is_valid(tree, NODES, DEPTH) and not (isinstance(tree, list) and set(json.dumps(tree)) & set("szd")):
        decode(tree)


def test_colliding_integers_cost_nothing() -> None:
    modulus = 2**61 - 1  # Python's hash of an integer is the integer modulo this
    tree = ["s", *(["i", hex(modulus * factor)] for factor in range(1, 9000))]
    started = time.monotonic()
    assert is_valid(tree, 10_000, DEPTH)
    assert not same(tree, encode([1]), unordered=True)
    assert show(tree)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "an object of type object"),
        ([{"a": range(3)}], "an object of type range"),
        (True.__class__, "an object of type type"),
        (list(range(NODES)), "more than 10000 parts"),
        ("x" * (1 << 21), "larger than 1 MB"),
        ([1 << (1 << 24)], "larger than 1 MB"),
        (["x" * (1 << 19)] * 3, "larger than 1 MB"),
    ],
)
def test_what_is_not_plain_is_refused(value: Any, why: str) -> None:
    with pytest.raises(NotPlain, match=why):
        encode(value)


def test_cycles_and_deep_nests_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(NotPlain, match="nests deeper than 30"):
        encode(cycle)
    bush: Any = 1
    for _ in range(25):
        bush = [bush, bush]  # 2**25 leaves in 25 objects
    with pytest.raises(NotPlain, match="more than 10000 parts"):
        encode(bush)


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        (["l", 1, ["f", "0x1.8p+0"], "a", None, True], "[1, 1.5, 'a', None, True]"),
        (["t", 1], "(1,)"),
        (["t"], "()"),
        (["s"], "set()"),
        (["s", 1], "{1}"),
        (["z", 1], "frozenset({1})"),
        (["d", "a", 1, 2, ["l"]], "{'a': 1, 2: []}"),
        (["i", "-0x20000000000000"], "-9007199254740992"),
        (["i", "0x" + "f" * 2000], "an integer of some 8008 bits"),
        (["b", "00ff"], "b'\\x00\\xff'"),
        (["c", "0x0.0p+0", "0x1.0p+0"], "1j"),
    ],
)
def test_values_are_shown_as_python_writes_them(tree: Any, shown: str) -> None:
    assert show(tree) == shown


def test_what_is_shown_is_short_and_printable() -> None:
    assert len(show(["l", *range(5000)])) == 200
    assert readable("a\x1b[31m\nb\ud800") == "a\\x1b[31m\\nb\\ud800"
    readable("\ud800").encode()


@given(json_values)
@FEW
def test_json_values_survive_conversion(value: Any) -> None:
    try:
        converted = to_json(through_json(encode(value)))
    except NotJson:
        return
    assert strictly_equal(converted, value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1}, "a set"),
        (frozenset({1}), "a frozenset"),
        (b"a", "bytes"),
        (1j, "a complex number"),
        (math.nan, "a float that is not finite"),
        (math.inf, "a float that is not finite"),
        ({1: 2}, "a dict with keys other than strings"),
        ([{(1,): 2}], "a dict with keys other than strings"),
        ("\ud800", "text that is not Unicode"),
        ("ä\udfff", "text that is not Unicode"),
        ([1 << 5000], "an integer of more than 300 digits"),
        (16**256, "an integer of more than 300 digits"),
    ],
)
def test_what_json_cannot_hold_is_not_converted(value: Any, why: str) -> None:
    with pytest.raises(NotJson) as refused:
        to_json(encode(value))
    assert str(refused.value) == f"is or holds {why}"


@pytest.mark.parametrize(
    "value", [{"a": 1, "b": [2.5, None], "": {"c": True}}, {"ä": "\uffff"}, -0.25, 1 << 100, 16**256 - 1, -(16**254)]
)
def test_what_json_can_hold_is_converted(value: Any) -> None:
    assert strictly_equal(to_json(encode(value)), value)


@pytest.mark.parametrize(
    ("tree", "nodes", "depth", "valid"),
    [
        (1, 1, 0, True),
        (1, 0, 0, False),
        (["l", 1, 2], 3, 1, True),
        (["l", 1, 2], 2, 1, False),
        (["l", 1, 2], 3, 0, False),
        (["l", ["l", ["l"]]], 9, 2, True),
        (["l", ["l", ["l"]]], 9, 1, False),
        (["l", ["l"], ["f", "what?"]], 9, 9, False),
        (["l", ["f", "what?"], ["l"]], 9, 9, False),
        (["d", "a", 1], 9, 9, True),
        (["d", "a"], 9, 9, False),
        (EXACT_INT - 1, 1, 0, True),
        (1 - EXACT_INT, 1, 0, True),
        (EXACT_INT, 1, 0, False),
        (-EXACT_INT, 1, 0, False),
        (["c", "0x1p0", "0x1p0"], 1, 0, True),
        (["c", "0x1p0"], 1, 0, False),
        (["c", "0x1p0", "what?"], 1, 0, False),
        (["f", "0x1." + "0" * 34 + "p0"], 1, 0, True),
        (["f", "0x1." + "0" * 35 + "p0"], 1, 0, False),
        (["f", "0x1p99999"], 1, 0, False),
    ],
)
def test_an_encoding_is_known_from_what_is_none_or_too_large(tree: Any, nodes: int, depth: int, valid: bool) -> None:
    assert is_valid(tree, nodes, depth) == valid


def test_without_a_tolerance_floats_are_compared_exactly() -> None:
    assert not same(encode(1.0), encode(1.5))
    assert same(encode(1.0), encode(1.5), tolerance=1.0)


@pytest.mark.parametrize("tolerance", [0.0, 1e-9])
@pytest.mark.parametrize(
    ("got", "expected", "equal"),
    [
        ([(1, 2), 3], [3, [1, 2]], True),
        ([{"a": (1,)}, {}], [{}, {"a": [1]}], True),
        ([{"a": 1, "b": 2}, 0], [0, {"b": 2, "a": 1}], True),
        ([["b", "a"], 0], [0, ["a", "b"]], False),
        ([["l", 1], 0], [0, ["l", 1]], True),
        ([0.0, 1], [1, -0.0], True),
        ([1.0, 2.0], [0.0, 1.0], False),
        ([math.nan, 1.0], [1.0, math.nan], True),
        ([math.nan, 1.0], [1.0, 2.0], False),
        ([1, 2], [1, 2, 3], False),
        ([1, 2, 3], [1, 2], False),
    ],
)
def test_multisets_are_equal_item_by_item(got: Any, expected: Any, equal: bool, tolerance: float) -> None:
    assert same(encode(got), encode(expected), tolerance, unordered=True) == equal


def test_large_multisets_are_compared_exactly_whatever_the_tolerance() -> None:
    off = [float(number) + 1e-12 for number in range(1, 1001)]
    exact = [float(number) for number in range(1000, 0, -1)]
    assert same(encode(off), encode(exact), 1e-6, unordered=True)
    assert not same(encode([*off, 0.0]), encode([*exact, 0.0]), 1e-6, unordered=True)
    assert not same(encode(off), encode(exact), unordered=True)


def test_what_is_shown_ends_at_the_limit() -> None:
    tree = ["l", *["abc"] * 50]
    whole = repr(["abc"] * 50)
    assert len(whole) > 200
    assert show(tree, 1_000) == whole
    assert show(["l", 1, 2], len("[1, 2]")) == "[1, 2]"
    assert len(show(tree, 30)) == 30
    assert show(["i", "0x" + "f" * 97]) == str(16**97 - 1)
    assert show(["i", "0x" + "f" * 98]) == "an integer of some 400 bits"
