"""One walk through all problems of a project: random programs, none the same as another or as a shorter one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

import numpy as np
from pydantic import JsonValue

from rlm_core.problems import Case, Problem, Provenance
from rlm_core.proportions import shares
from rlm_core.proposals.known import KnownProblems
from rlm_core.sandbox import Sandbox
from rlm_core.seeds import derive_seed
from rlm_core.sources.procedural.compose import Program, draw
from rlm_core.sources.procedural.inputs import draw_input
from rlm_core.sources.procedural.primitives import Argument, Kind
from rlm_core.sources.procedural.trial import Outcomes, run_programs
from rlm_core.sources.procedural.wording import prompt
from rlm_core.verifiers.trivial import best_trivial_share

PROBES = 24
"""Inputs by which two programs are told apart, the same for all programs with the same arguments."""
_FEWEST_PROBES = 6
"""Probes that a program must be able to take."""
_OWN_INPUTS = 24
"""Inputs drawn for each problem, out of which its cases are chosen."""
_CASES = (6, 9)
"""Fewest and most cases of a problem."""
_MIN_DISTINCT_OUTPUTS = 3
_MAX_TRIVIAL_SHARE = 0.5
"""These and `_MAX_LIKENESS` are not the filter's settings, though its defaults are the same: a project's walk is made
again from its start in each iteration, and with other bounds it would be another walk, which repeats problems."""
_BATCH = 50
"""Programs tried in one go."""
_TRIES = 20
"""Draws for each program of a batch."""
_PATIENCE = 20
"""Batches without a new problem after which a difficulty counts as used up."""
_MAX_LIKENESS = 0.8
"""Of a problem's words to those of an earlier one: beyond it, they differ in a constant and little else."""
_LARGEST = 100_000
_LONGEST = 80
"""Outputs beyond these are left out of cases: numbers, and characters as JSON."""
_DOMAINS: dict[Kind, str] = {"int": "maths", "ints": "arrays", "text": "strings", "words": "arrays"}


def problems(
    count: int, seed: int, iteration: int, difficulties: Mapping[int, float], sandbox: Sandbox
) -> list[Problem]:
    """An iteration's stretch of its project's walk: no two problems of it, or of earlier stretches, are alike.

    The walk is made again from its start, which takes some milliseconds a problem and needs nothing to be kept. As long
    as count and weights stay what they were, no problem comes twice.

    Args:
        seed: the project's.
        iteration: from 1.
        difficulties: weight of each difficulty, 1 for the easiest.

    Returns:
        The problems in random order; fewer than `count` when a difficulty has no more.

    Raises:
        InfrastructureFault: the sandbox failed.
    """
    known = Known()
    walks = {
        difficulty: _walk(difficulty, derive_seed(seed, "procedural"), known, sandbox) for difficulty in difficulties
    }
    made: list[Problem] = []
    for _ in range(iteration):
        wanted = shares(count, difficulties)
        made = [problem for difficulty, walk in walks.items() for problem in islice(walk, wanted[difficulty])]
    order = np.random.default_rng(derive_seed(seed, iteration, "procedural")).permutation(len(made))
    return [made[i] for i in order]


@dataclass
class Known:
    """What the problems so far do and how they read."""

    behaviours: set[str] = field(default_factory=set)
    problems: KnownProblems = field(default_factory=lambda: KnownProblems({}))

    def has_one_like(self, problem: Problem) -> bool:
        return self.problems.nearest(problem, ["batch"], above=_MAX_LIKENESS)[0] > 0

    def add(self, behaviour: str, problem: Problem) -> None:
        self.behaviours.add(behaviour)
        self.problems.add("batch", problem)


def _walk(difficulty: int, seed: int, known: Known, sandbox: Sandbox) -> Iterator[Problem]:
    """All problems of one difficulty that are found; `known` is shared with other walks and grows."""
    rng = np.random.default_rng(derive_seed(seed, difficulty))
    drawn: set[str] = set()
    fruitless = 0
    while fruitless < _PATIENCE:
        fruitless += 1
        for problem in problems_of(_candidates(rng, difficulty, drawn), seed, known, sandbox):
            fruitless = 0
            yield problem


def _candidates(rng: np.random.Generator, difficulty: int, drawn: set[str]) -> list[Program]:
    """A batch of programs that were not drawn before, a smaller one where such are rare."""
    found: list[Program] = []
    for _ in range(_TRIES * _BATCH):
        program = draw(rng, difficulty)
        if program is not None and program.signature not in drawn:
            drawn.add(program.signature)
            found.append(program)
            if len(found) == _BATCH:
                break
    return found


def problems_of(candidates: Sequence[Program], seed: int, known: Known, sandbox: Sandbox) -> Iterator[Problem]:
    """Problems that ask for the candidates, those left out that are nothing new or of which no good cases were found.

    Args:
        known: earlier problems; these are added.
    """
    if not candidates:
        return
    own = [_inputs(program.arguments, derive_seed(seed, program.signature), _OWN_INPUTS) for program in candidates]
    given = [probes(program.arguments) + inputs for program, inputs in zip(candidates, own, strict=True)]
    outcomes = run_programs(candidates, given, sandbox)
    redundant = _redundant(candidates, [each[:PROBES] for each in outcomes], sandbox)
    for number, program in enumerate(candidates):
        taken = PROBES - outcomes[number][:PROBES].count([])
        behaviour = behaviour_of(program, outcomes[number][:PROBES])
        if program in redundant or behaviour in known.behaviours or taken < _FEWEST_PROBES:
            continue
        rng = np.random.default_rng(derive_seed(seed, program.signature, "words"))
        cases = _cases(given[number][PROBES:], outcomes[number][PROBES:], rng)
        if not cases:
            continue
        problem = _problem(program, cases, rng)
        if best_trivial_share(problem) <= _MAX_TRIVIAL_SHARE and not known.has_one_like(problem):
            known.add(behaviour, problem)
            yield problem


def _redundant(programs: Sequence[Program], outcomes: Sequence[Outcomes], sandbox: Sandbox) -> set[Program]:
    """The programs that give for the probes what they give with some of their steps left out."""
    shorter = [
        (program, each, known)
        for program, known in zip(programs, outcomes, strict=True)
        for each in program.shortenings()
    ]
    found = run_programs([each for _, each, _ in shorter], [probes(each.arguments) for _, each, _ in shorter], sandbox)
    return {program for (program, _, known), given in zip(shorter, found, strict=True) if _agree(known, given)}


def probes(arguments: Sequence[Argument]) -> list[list[JsonValue]]:
    """The inputs by which programs with such arguments are told apart."""
    return _inputs(arguments, derive_seed("probes", *(argument.range for argument in arguments)), PROBES)


def behaviour_of(program: Program, outcomes: Outcomes) -> str:
    """What a program does: two programs are the same when they give the same for the same inputs."""
    return json.dumps([[argument.range for argument in program.arguments], outcomes])


def _inputs(arguments: Sequence[Argument], seed: int, count: int) -> list[list[JsonValue]]:
    rng = np.random.default_rng(seed)
    return [draw_input(arguments, rng) for _ in range(count)]


def _agree(longer: Outcomes, shorter: Outcomes) -> bool:
    """Whether the shorter program gives the same wherever the longer one gives anything."""
    return all(a == b for a, b in zip(longer, shorter, strict=True) if a)


def _cases(inputs: list[list[JsonValue]], outcomes: Outcomes, rng: np.random.Generator) -> tuple[Case, ...]:
    """Cases of as many different outputs as there are, or none when there are too few."""
    by_output: dict[str, list[Case]] = {}
    for given, outcome in zip(inputs, outcomes, strict=True):
        if outcome and _handy(outcome[0]):
            cases = by_output.setdefault(json.dumps(outcome[0]), [])
            if all(case.input != given for case in cases):
                cases.append(Case(input=given, expected=outcome[0]))
    fewest, most = _CASES
    wanted = int(rng.integers(fewest, most + 1))
    ranked = [(rank, case) for cases in by_output.values() for rank, case in enumerate(cases)]
    chosen = [case for _, case in sorted(ranked, key=itemgetter(0))][:wanted]
    enough = len(chosen) >= fewest and len(by_output) >= _MIN_DISTINCT_OUTPUTS
    return tuple(chosen) if enough else ()


def _handy(output: JsonValue) -> bool:
    """Whether an output is small enough for a case that people can read."""
    numbers = output if isinstance(output, list) else [output]
    return len(json.dumps(output)) <= _LONGEST and all(
        abs(each) <= _LARGEST for each in numbers if isinstance(each, int)
    )


def _problem(program: Program, cases: tuple[Case, ...], rng: np.random.Generator) -> Problem:
    return Problem(
        prompt=prompt(program, rng),
        entry_point=program.entry_point,
        cases=cases,
        signature=program.signature,
        domain=_DOMAINS[program.start.gives],
        difficulty=str(program.difficulty),
        reference=program.source(program.entry_point),
        provenance=Provenance(source="procedural", expected_from="reference"),
    )
