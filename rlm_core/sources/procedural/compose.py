"""Programs: a start and steps whose types fit, with their reference solution and their cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from rlm_core.sources.procedural import number_steps, text_steps
from rlm_core.sources.procedural.primitives import HINTS, Argument, Kind, Start, Step

STARTS = (*number_steps.STARTS, *text_steps.STARTS)
STEPS = (*number_steps.STEPS, *text_steps.STEPS)

_STARTS_BY_KIND: dict[Kind, list[Start]] = {kind: [start for start in STARTS if start.gives == kind] for kind in HINTS}
_STEPS_BY_KIND: dict[Kind, list[Step]] = {kind: [step for step in STEPS if step.takes == kind] for kind in HINTS}
_KINDS: tuple[Kind, ...] = tuple(_STARTS_BY_KIND)
_NAMES: dict[Kind, str] = {"int": "number", "ints": "values", "text": "result", "words": "parts"}
"""Names of a reference's variables."""
_NAMED = 3
"""Steps that a function's name tells."""


@dataclass(frozen=True)
class Link:
    """A step with its parameter: a constant, an argument of the function, or none."""

    step: Step
    parameter: int | str | Argument | None = None

    @property
    def cost(self) -> int:
        return self.step.cost + isinstance(self.parameter, Argument)

    @property
    def shown(self) -> str:
        """The parameter in code and in names."""
        return self.parameter.name if isinstance(self.parameter, Argument) else str(self.parameter)


@dataclass(frozen=True)
class Program:
    """What a problem asks for."""

    start: Start
    links: tuple[Link, ...]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        own = (link.parameter for link in self.links)
        return (*self.start.arguments, *(each for each in own if isinstance(each, Argument)))

    @property
    def gives(self) -> Kind:
        return self.links[-1].step.gives if self.links else self.start.gives

    @property
    def difficulty(self) -> int:
        """1 for what costs one or two, 2 for three or four, and so on."""
        return (self.start.cost + sum(link.cost for link in self.links) + 1) // 2

    @property
    def entry_point(self) -> str:
        """A name that says what comes out, the last step first and not more than three."""
        parts = [link.step.name.format(k=link.shown) for link in reversed(self.links)][:_NAMED]
        if len(self.links) <= 1 or (self.start.name and len(self.links) < _NAMED):
            parts.append(self.start.name or self.start.arguments[0].name)
        return "_".join(parts)

    @property
    def signature(self) -> str:
        typed = ", ".join(f"{argument.name}: {HINTS[argument.kind]}" for argument in self.arguments)
        return f"{self.entry_point}({typed}) -> {HINTS[self.gives]}"

    def source(self, name: str) -> str:
        """The solution as a function of that name: one line for each step."""
        body = [f"{name} = {code}" for name, code, _ in self._lines()]
        body[-1] = "return " + body[-1].partition(" = ")[2]
        imports = "import math\n\n\n" if any("math." in line for line in body) else ""
        return imports + self._function(name, body)

    def guard(self, name: str) -> str:
        """Source of a function of that name that says whether an input may be in a case."""
        body = [line for variable, code, guard in self._lines() for line in _guarded(variable, code, guard)]
        return self._function(name, [*body, "return True"])

    def shortenings(self) -> Iterator["Program"]:
        """The programs without some neighbouring steps whose types still fit and that take the same arguments."""
        for first, last in combinations(range(len(self.links) + 1), 2):
            left_out = self.links[first:last]
            keeps_arguments = not any(isinstance(link.parameter, Argument) for link in left_out)
            if keeps_arguments and left_out[0].step.takes == left_out[-1].step.gives:
                yield replace(self, links=self.links[:first] + self.links[last:])

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        """For each line, the variable that it sets, its code and the guard of what it reads."""
        value = self.start.code
        if not value.isidentifier() or not self.links:
            yield _NAMES[self.start.gives], value, "True"
            value = _NAMES[self.start.gives]
        for link in self.links:
            fill = {"x": value, "k": link.shown}
            value = _NAMES[link.step.gives]
            yield value, link.step.code.format(**fill), link.step.guard.format(**fill)

    def _function(self, name: str, body: list[str]) -> str:
        arguments = ", ".join(argument.name for argument in self.arguments)
        return "\n".join([f"def {name}({arguments}):", *(f"    {line}" for line in body)]) + "\n"


def _guarded(variable: str, code: str, guard: str) -> Iterator[str]:
    if guard != "True":
        yield f"if not ({guard}):"
        yield "    return False"
    yield f"{variable} = {code}"


def draw(rng: np.random.Generator, difficulty: int) -> Program | None:
    """A random program of a difficulty, or None when what was drawn has another one."""
    starts = _STARTS_BY_KIND[_KINDS[rng.integers(len(_KINDS))]]
    program = Program(starts[rng.integers(len(starts))], ())
    wanted = rng.integers(1, difficulty + 2)
    while len(program.links) < wanted:
        link = _drawn(rng, _STEPS_BY_KIND[program.gives])
        taken = {argument.name for argument in program.arguments}
        if isinstance(link.parameter, Argument) and link.parameter.name in taken:
            return None
        if any(other.step is link.step for other in program.links):
            return None
        program = replace(program, links=(*program.links, link))
    return program if program.difficulty == difficulty else None


def _drawn(rng: np.random.Generator, steps: list[Step]) -> Link:
    step = steps[rng.integers(len(steps))]
    choices = [*step.constants, *([step.argument] if step.argument else [])]
    return Link(step, choices[rng.integers(len(choices))] if choices else None)
