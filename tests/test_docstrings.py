"""What public docstrings say of errors is complete, as far as a function raises them itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_core import errors
from rlm_core.sandbox.inside.errors import LockdownError

ROOT = Path(__file__).parents[1]
OURS = {name for name, value in vars(errors).items() if isinstance(value, type)} | {LockdownError.__name__}
HELP = ROOT / "rlm_cli" / "main.py"
"""Its docstrings are what `--help` prints."""

FILES = sorted(
    file
    for folder in ("rlm_core", "rlm_cli", "tasks", "flows")
    for file in (ROOT / folder).rglob("*.py")
    if file != HELP
)


def public_functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from public_functions(node)
            else:
                yield node


def raised(node: ast.AST) -> Iterator[str]:
    """Names of the errors that a function raises itself; not what the functions in it do."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call) and isinstance(inner.exc.func, ast.Name):
            yield inner.exc.func.id
        elif not isinstance(inner, ast.FunctionDef | ast.Lambda):
            yield from raised(inner)


def unnamed(source: str) -> list[str]:
    """Each public function with the errors of ours that it raises and does not name."""
    return [
        f"{function.name}: {name}"
        for function in public_functions(ast.parse(source))
        for name in sorted(set(raised(function)) & OURS)
        if name not in (ast.get_docstring(function) or "")
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    if 1:\n        raise UsageError('x') from None", ["f: UsageError"]),
        ("class A:\n    def f(self):\n        '''Raises UsageError.'''\n        raise UsageError('x')", []),
        ("def f():\n    def g():\n        raise UsageError('x')\n    raise ValueError('x')", []),
        ("def _f():\n    raise UsageError('x')", []),
    ],
)
def test_the_search_for_errors_without_a_name_finds_them(source: str, expected: list[str]) -> None:
    assert unnamed(source) == expected


def test_a_public_function_names_the_errors_that_it_raises() -> None:
    assert {file.relative_to(ROOT).as_posix(): found for file in FILES if (found := unnamed(file.read_text()))} == {}
