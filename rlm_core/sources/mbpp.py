"""MBPP's format, of its JSON Lines and of the sanitized JSON file: a sentence, a solution, and assertions.

Austin et al. 2021, "Program Synthesis with Large Language Models", arXiv 2108.07732. A model is shown the sentence and
the assertions, as in the paper.
"""

import ast
import json
from textwrap import indent
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from rlm_core.problems import Problem, Pytest
from rlm_core.sources.suite import Asking

FIELDS = frozenset({"code", "test_list"})


class Row(BaseModel):
    """What is read of an entry."""

    text: str = ""
    """The sentence; the sanitized file calls it `prompt`."""
    prompt: str = ""
    code: Annotated[str, Field(min_length=1)]
    test_imports: list[str] = []
    test_setup_code: str = ""
    test_list: Annotated[list[str], Field(min_length=1)]
    challenge_test_list: list[str] = []

    @model_validator(mode="after")
    def _has_a_sentence(self) -> "Row":
        if not self.sentence:
            raise ValueError("text: the sentence that says what is wanted is missing, and so is prompt")
        return self

    @property
    def sentence(self) -> str:
        return (self.text or self.prompt).strip()


def problem(entry: Any) -> tuple[Problem, Asking]:
    """The problem that an entry is.

    Raises:
        ValueError: it is none.
    """
    row = Row.model_validate_json(json.dumps(entry))
    names = _names(row)
    shown = "\n".join(test.strip() for test in row.test_list)
    made = Problem(
        prompt=f"{row.sentence}\nThe code must pass these tests:\n\n{shown}\n\n",
        entry_point=_called_first(row, names),
        verifier=Pytest(tests=_tests(row, names)),
        reference=row.code,
    )
    return made, Asking()


def _names(row: Row) -> list[str]:
    """What the tests use of the code, sorted.

    Raises:
        ValueError: there is nothing.
    """
    code, setup = parsed("code", row.code), parsed("test_setup_code", row.test_setup_code)
    tests = [parsed(f"test_list.{number}", test) for number, test in enumerate(row.test_list)]
    used = {node.id for tree in [setup, *tests] for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not (names := sorted(used & defined(code) - defined(setup))):
        raise ValueError("test_list: the tests call nothing that the code defines")
    return names


def _called_first(row: Row, names: list[str]) -> str:
    calls = [node.func for node in ast.walk(ast.parse(row.test_list[0])) if isinstance(node, ast.Call)]
    return next((call.id for call in calls if isinstance(call, ast.Name) and call.id in names), names[0])


def _tests(row: Row, names: list[str]) -> str:
    """The test module. Names are imported in each test, where pytest takes none of them for a test of its own."""
    lines = [f"from main import {', '.join(names)}", plain("test_setup_code", row.test_setup_code)]
    module = ["\n".join([*row.test_imports, *_imports(row.code)])]
    for number, test in enumerate([*row.test_list, *row.challenge_test_list], 1):
        body = "\n".join(filter(None, [*lines, plain(f"test_list.{number - 1}", test)]))
        module.append(f"def test_{number}():\n{indent(body, '    ')}\n")
    return "\n\n".join(filter(None, module))


def _imports(code: str) -> list[str]:
    """What a solution imports: tests that were written to run beside it may use that."""
    return [ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]


def parsed(field: str, source: str) -> ast.Module:
    """A piece of the data set's code as a syntax tree.

    Raises:
        ValueError: it is no Python, or nested too deep to be read; the message begins with the field.
    """
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"{field}: is no Python: {error.msg}, line {error.lineno}") from error
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{field}: is nested too deep to be read") from error


def plain(field: str, source: str) -> str:
    """The code written so that it can be indented: no string in it goes on over a line's end."""
    return ast.unparse(parsed(field, source))


def defined(tree: ast.Module) -> set[str]:
    """Names that a module defines or assigns at its top level."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return found
