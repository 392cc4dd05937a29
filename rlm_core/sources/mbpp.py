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
from rlm_core.sources.dataset_code import defined, plain, syntax_tree
from rlm_core.sources.suite import Asking

FIELDS = frozenset({"code", "test_list"})


class MbppEntry(BaseModel):
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
    def _has_a_sentence(self) -> "MbppEntry":
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
    read = MbppEntry.model_validate_json(json.dumps(entry))
    names = _names(read)
    shown = "\n".join(test.strip() for test in read.test_list)
    made = Problem(
        prompt=f"{read.sentence}\nThe code must pass these tests:\n\n{shown}\n\n",
        entry_point=_called_first(read, names),
        verifier=Pytest(tests=_tests(read, names)),
        reference=read.code,
    )
    return made, Asking()


def _names(entry: MbppEntry) -> list[str]:
    """What the tests use of the code, sorted.

    Raises:
        ValueError: there is nothing.
    """
    code, setup = syntax_tree("code", entry.code), syntax_tree("test_setup_code", entry.test_setup_code)
    tests = [syntax_tree(f"test_list.{number}", test) for number, test in enumerate(entry.test_list)]
    used = {node.id for tree in [setup, *tests] for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not (names := sorted(used & defined(code) - defined(setup))):
        raise ValueError("test_list: the tests call nothing that the code defines")
    return names


def _called_first(entry: MbppEntry, names: list[str]) -> str:
    calls = [node.func for node in ast.walk(ast.parse(entry.test_list[0])) if isinstance(node, ast.Call)]
    return next((call.id for call in calls if isinstance(call, ast.Name) and call.id in names), names[0])


def _tests(entry: MbppEntry, names: list[str]) -> str:
    """The test module. Names are imported in each test, where pytest takes none of them for a test of its own."""
    lines = [f"from main import {', '.join(names)}", plain("test_setup_code", entry.test_setup_code)]
    module = ["\n".join([*entry.test_imports, *_imports(entry.code)])]
    for number, test in enumerate([*entry.test_list, *entry.challenge_test_list], 1):
        body = "\n".join(filter(None, [*lines, plain(f"test_list.{number - 1}", test)]))
        module.append(f"def test_{number}():\n{indent(body, '    ')}\n")
    return "\n\n".join(filter(None, module))


def _imports(code: str) -> list[str]:
    """What a solution imports: tests that were written to run beside it may use that."""
    return [ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
