"""Small mistakes in a solution: which ones are made, and that each is another program."""

import ast

import pytest

from rlm_core.proposals.slips import slips


@pytest.mark.parametrize(
    ("code", "slip"),
    [
        ("a < b", "a <= b"),
        ("a < b", "a >= b"),
        ("a == b", "a != b"),
        ("a in b", "a not in b"),
        ("a + b", "a - b"),
        ("a // b", "a / b"),
        ("a % b", "a // b"),
        ("-a", "+a"),
        ("a and b", "a or b"),
        ("7", "8"),
        ("7", "6"),
        ("True", "False"),
        ("'x'", "''"),
        ("b if a else c", "b if not a else c"),
        ("[x for x in a if x]", "[x for x in a]"),
        ("a[b:]", "a[b + 1:]"),
        ("a[:b]", "a[:b + 1]"),
        ("range(n)", "range(n + 1)"),
        ("max(a)", "min(a)"),
        ("a.upper()", "a.lower()"),
        ("sorted(a, reverse=True)", "(lambda same, **_: same)(a, reverse=True)"),
        ("len(set(a))", "len((lambda same, **_: same)(a))"),
        ("a.strip()", "(lambda: a)()"),
    ],
)
def test_each_kind_of_mistake_is_made(code: str, slip: str) -> None:
    assert f"def f():\n    return {slip}" in slips(f"def f():\n    return {code}\n", 100)


def test_statements_slip_too() -> None:
    made = slips("def f(a):\n    while a:\n        a -= 1\n    return a\n", 100)
    assert {"while not a", "a += 1", "a -= 2", "a -= 0", "return None"} == {
        part for text in made for part in ("while not a", "a += 1", "a -= 2", "a -= 0", "return None") if part in text
    }


def test_no_slip_is_the_program_itself_and_none_comes_twice() -> None:
    code = 'def f(a):\n    """Text that documents."""\n    return sorted(a)[0] + 1 if a and a[0] > 2 else None\n'
    made = slips(code, 100)
    assert len(made) == len(set(made)) > 8
    assert ast.unparse(ast.parse(code)) not in made
    assert all("Text that documents." in text for text in made)


def test_which_ones_are_left_out_depends_on_neither_layout_nor_place() -> None:
    code = "def f(a, b):\n    return a + 1 < b - 2\n"
    every = slips(code, 100)
    assert slips(code, 3) == every[:3]
    assert slips(code.replace("return", "# a remark\n    return"), 3) == every[:3]


def test_what_is_no_program_has_none() -> None:
    with pytest.raises(SyntaxError):
        slips("def f(:", 10)
