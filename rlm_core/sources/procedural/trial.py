"""Programs tried in the sandbox, many at a time: what they give is what their problems expect."""

from collections.abc import Sequence

from pydantic import JsonValue

from rlm_core.errors import InfrastructureFault
from rlm_core.sandbox import Sandbox
from rlm_core.sources.procedural.compose import Program
from rlm_core.verifiers.cases import Value, run_cases

Outcomes = list[list[JsonValue]]
"""For each input the output in a list of its own, or an empty list when the input may be in no case."""

_PER_CALL = 20
"""Programs that one call runs: each call waits for the sandbox to answer, and what it returns is limited in size."""

_HARNESS = """
def outcomes(first, inputs):
    return [outcomes_of(*FUNCTIONS[first + i], each) for i, each in enumerate(inputs)]


def outcomes_of(reference, admits, inputs):
    return [[reference(*given)] if admits(*given) else [] for given in inputs]
"""


def run_programs(
    programs: Sequence[Program], inputs: Sequence[list[list[JsonValue]]], sandbox: Sandbox
) -> list[Outcomes]:
    """What the reference of each program gives for its inputs.

    Raises:
        InfrastructureFault: the sandbox failed, or a reference did, which a test should have found.
    """
    parts, table = [], []
    for number, program in enumerate(programs):
        parts += [program.source(f"reference_{number}"), program.guard(f"guard_{number}")]
        table.append(f"    (reference_{number}, guard_{number}),\n")
    code = "\n".join([*parts, f"FUNCTIONS = [\n{''.join(table)}]\n", _HARNESS])
    calls: list[list[JsonValue]] = [
        [first, [[*given] for given in inputs[first : first + _PER_CALL]]]
        for first in range(0, len(programs), _PER_CALL)
    ]
    outcomes: list[Outcomes] = []
    for result in run_cases(sandbox, code, "outcomes", calls):
        if not isinstance(result, Value):
            names = ", ".join(program.entry_point for program in programs[len(outcomes) :][:_PER_CALL])
            raise InfrastructureFault(f"composed problems: one of {names} came to {result!r}")
        outcomes += result.value  # type: ignore[arg-type]
    return outcomes
