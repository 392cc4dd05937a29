"""Programs tried in the sandbox, many at a time: what they give is what their problems expect."""

from collections.abc import Sequence

from pydantic import JsonValue

from rlm_core.errors import InfrastructureFault
from rlm_core.sandbox import Sandbox
from rlm_core.sources.procedural.compose import Program
from rlm_core.verifiers.cases import Value, run_cases

Outcomes = list[list[JsonValue]]
"""For each input the output in a list of its own, or an empty list when the input may be in no case."""

_HARNESS = """
def outcomes(number, inputs):
    reference, admits = FUNCTIONS[number]
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
    results = run_cases(sandbox, code, "outcomes", [[number, list(given)] for number, given in enumerate(inputs)])
    outcomes: list[Outcomes] = []
    for program, result in zip(programs, results, strict=True):
        if not isinstance(result, Value):
            raise InfrastructureFault(f"{program.entry_point}: its reference came to {result!r}")
        outcomes.append(result.value)  # type: ignore[arg-type]
    return outcomes
