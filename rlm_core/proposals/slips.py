"""A solution with one small mistake in it: what a problem's cases have to catch."""

import ast
from collections.abc import Iterator
from typing import Any

from rlm_core.files import digest

_OTHERWISE: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.USub: (ast.UAdd,),
}
"""Operators, and what could be written by mistake."""
_PAIRS = (("min", "max"), ("any", "all"), ("upper", "lower"), ("lstrip", "rstrip"), ("startswith", "endswith"))
_NAMES = dict(_PAIRS) | {right: left for left, right in _PAIRS}
"""Functions and methods, and what could be called by mistake."""

_LEFT_OUT = ("sorted", "reversed", "set", "abs", "round")
_METHODS_LEFT_OUT = ("strip", "lstrip", "rstrip", "lower", "upper", "swapcase", "title", "capitalize")
"""What gives a value of the kind that it is given, so that it could be forgotten."""

_Edit = tuple[ast.AST, str, Any]
"""A node, one of its fields, and another value for it."""


def slips(code: str, most: int) -> list[str]:
    """Programs that differ from `code` in one operator, number, text, condition, bound, name, call or returned value.

    Args:
        most: how many at most. Which ones are left out depends on what they are and not on where they stand.

    Raises:
        SyntaxError, ValueError, RecursionError: the code cannot be parsed.
    """
    tree = ast.parse(code)
    own = ast.unparse(tree)
    found = dict.fromkeys(text for edit in _edits(tree) if (text := _edited(tree, *edit)) != own)
    return sorted(found, key=digest)[:most]


def numbers_in(code: str) -> list[int]:
    """The whole numbers that are written in a program.

    Raises:
        SyntaxError, ValueError, RecursionError: as `slips`.
    """
    constants = (node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant))
    return sorted({value for value in constants if type(value) is int})


def _edited(tree: ast.AST, node: ast.AST, field: str, value: Any) -> str:
    """The source with an edit made, which is taken back."""
    before = getattr(node, field)
    setattr(node, field, value)
    try:
        return ast.unparse(tree)
    finally:
        setattr(node, field, before)


def _edits(tree: ast.AST) -> Iterator[_Edit]:
    ignored = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    """Statements that are a value alone, such as the text that documents a function."""
    for node in ast.walk(tree):
        if id(node) not in ignored:
            yield from _edits_of(node)


def _edits_of(node: ast.AST) -> Iterator[_Edit]:
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() | ast.UnaryOp():
            yield from ((node, "op", other()) for other in _OTHERWISE.get(type(node.op), ()))
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in _OTHERWISE[type(op)]:
                    yield node, "ops", [*node.ops[:i], other(), *node.ops[i + 1 :]]
        case ast.Constant():
            yield from ((node, "value", other) for other in _constants(node.value))
        case ast.If() | ast.While() | ast.IfExp():
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        case ast.comprehension():
            for i in range(len(node.ifs)):
                yield node, "ifs", [*node.ifs[:i], *node.ifs[i + 1 :]]
        case ast.Return(value=ast.expr()):
            yield node, "value", ast.Constant(None)
        case ast.Slice():
            yield from _bounds(node)
        case ast.Call(func=ast.Name(id="range")):
            for i, bound in enumerate(node.args[:2]):
                yield node, "args", [*node.args[:i], _one_more(bound), *node.args[i + 1 :]]
        case ast.Call(func=ast.Name(id=name), args=[_]) if name in _LEFT_OUT:
            yield node, "func", _parsed("lambda same, **_: same")
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[]) if name in _METHODS_LEFT_OUT:
            yield node, "func", ast.Lambda(_parsed("lambda: 0").args, value)
        case ast.Name() if node.id in _NAMES:
            yield node, "id", _NAMES[node.id]
        case ast.Attribute() if node.attr in _NAMES:
            yield node, "attr", _NAMES[node.attr]


def _bounds(node: ast.Slice) -> Iterator[_Edit]:
    for field, bound in (("lower", node.lower), ("upper", node.upper)):
        if bound is not None:
            yield node, field, _one_more(bound)


def _parsed(expression: str) -> Any:
    return ast.parse(expression, mode="eval").body


def _one_more(bound: ast.expr) -> ast.expr:
    return ast.BinOp(bound, ast.Add(), ast.Constant(1))


def _constants(value: Any) -> tuple[Any, ...]:
    match value:
        case bool():
            return (not value,)
        case int():
            return (value + 1, value - 1)
        case float():
            return (value + 1,)
        case str():
            return ("" if value else "x",)
    return ()
