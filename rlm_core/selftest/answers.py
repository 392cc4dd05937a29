"""The bundled answers: read from answers.yaml, and aimed at what the self-test has planted."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Annotated, Literal, get_args

import yaml
from pydantic import Field, model_validator

from rlm_core.problems import Mode, Problem, Pytest
from rlm_core.records import Record

MODES: tuple[Mode, ...] = get_args(Mode)
Must = Literal["pass", "fail"]
_FILE = Path(__file__).with_name("answers.yaml")


class BundledAnswer(Record):
    """One answer of the set; answers.yaml explains the fields."""

    name: str
    tries: str
    must: Must
    code: str | None = None
    attack: str | None = None
    runs: Annotated[int, Field(ge=1, le=5)] = 1
    modes: tuple[Mode, ...] = MODES
    only: str = ""
    """Beginning of `sys.platform`."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "BundledAnswer":
        if (self.code is None) == (self.attack is None):
            raise ValueError(f"{self.name}: either code or an attack is needed")
        if self.attack is not None and self.must == "pass":
            raise ValueError(f"{self.name}: an attack must fail")
        return self

    @property
    def is_for_here(self) -> bool:
        """Whether it is meant for this platform."""
        return sys.platform.startswith(self.only)


class AnswerSet(Record):
    """The whole file."""

    problem: Problem
    tests: str
    """The same problem as pytest tests."""
    test_ids: tuple[str, ...]
    """Their ids. Known from the start, because a sandbox that may not hold is not to be asked for them."""
    around_an_attack: str
    answers: tuple[BundledAnswer, ...]

    def problem_for(self, mode: Mode) -> Problem:
        """The problem, prepared to be judged by its cases or by its tests."""
        if mode == "cases":
            return self.problem
        return self.problem.model_copy(update={"verifier": Pytest(tests=self.tests), "test_ids": self.test_ids})

    def aimed(self, answer: BundledAnswer, addresses: Mapping[str, str]) -> str | None:
        """The code of an answer, with the addresses of what it reaches for, or None when that was not planted."""
        code = answer.code
        if code is None:
            code = self.around_an_attack.replace("$attack", indent(str(answer.attack), "    "))
        try:
            return Template(code).substitute(addresses)
        except KeyError:
            return None


@cache
def bundled() -> AnswerSet:
    """The set that ships with the package."""
    return AnswerSet.model_validate(yaml.safe_load(_FILE.read_text("utf-8")))
