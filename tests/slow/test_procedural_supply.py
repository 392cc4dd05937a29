"""How many problems the primitives give, told apart by what they do."""

from collections import Counter
from typing import Any

import pytest

from rlm_core.problems import Problem
from rlm_core.sandbox import open_sandbox
from rlm_core.sources.procedural import problems, source
from rlm_core.sources.procedural.compose import Program
from rlm_core.sources.procedural.source import behaviour_of, probes
from rlm_core.sources.procedural.trial import run_programs

_AT_ONCE = 50


def test_thousands_of_problems_behave_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each program gives for the probes of its kind is worked out again, apart from the walk that chose them."""
    programs: dict[str, Program] = {}
    asking = source._problem

    def remembered(program: Program, *arguments: Any) -> Problem:
        problem = asking(program, *arguments)
        programs[problem.id] = program
        return problem

    monkeypatch.setattr(source, "_problem", remembered)
    with open_sandbox() as sandbox:
        made = problems(2_000, 1, 1, {1: 1.0, 2: 2.0, 3: 2.0}, sandbox)
        assert Counter(problem.difficulty for problem in made) == {"1": 400, "2": 800, "3": 800}
        behaviours = set()
        for first in range(0, len(made), _AT_ONCE):
            some = [programs[problem.id] for problem in made[first : first + _AT_ONCE]]
            outcomes = run_programs(some, [probes(program.arguments) for program in some], sandbox)
            behaviours |= {behaviour_of(program, each) for program, each in zip(some, outcomes, strict=True)}
    assert len(behaviours) == 2_000
