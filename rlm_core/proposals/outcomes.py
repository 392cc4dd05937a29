"""What a solution does on many inputs that nobody made for it: on each of them, whatever it does on the others.

Such inputs are those of other problems, and variations of its own. On some it may never end, or end its own process. So
each has a time limit within the process, and where the process is lost, all that it was given is tried one by one.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from rlm_core.problems import Case, Problem
from rlm_core.records import Record
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import CallResult, NoResult, Raised, Value, encoder_for, passes, run_cases

_AT_ONCE = 50
"""Inputs that one call runs."""
_MOST_ALONE = 100
"""Inputs that are tried by themselves; what is left over after that is unknown."""
_CPU_S = 0.01
"""For one input. A millionth of it is what most take."""
_HARNESS = """

def outcomes_of_each(inputs):
    import signal

    class Late(BaseException):
        pass

    def ring(*_):
        raise Late

    signal.signal(signal.SIGPROF, ring)
    found = []
    for given in inputs:
        try:
            signal.setitimer(signal.ITIMER_PROF, {cpu_s})
            try:
                value = {entry_point}(*given)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            found.append(["value", value])
        except Late:
            found.append(["late", None])
        except BaseException as error:
            found.append(["raised", [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]])
    return found
"""
"""Put behind a solution. It shares a process with it, so what it says is the solution's own word."""


class Unknown(Record):
    """A call that was late, or lost its process, or was not tried: nothing is known of it."""


Outcome = CallResult | Unknown


def is_passed(case: Case, outcome: Outcome, problem: Problem, sandbox: Sandbox) -> bool | None:
    """Whether a case of the problem is passed by what came of its input; None when nothing is known of that."""
    return None if isinstance(outcome, Unknown) else passes(case, outcome, problem, encoder_for(sandbox.limits))


def outcomes(sandbox: Sandbox, code: str, entry_point: str, inputs: Sequence[list[JsonValue]]) -> list[Outcome]:
    """What comes of each input, in their order.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    if not inputs:
        return []
    code += _HARNESS.format(entry_point=entry_point, cpu_s=_CPU_S)
    chunks = [[*inputs[i : i + _AT_ONCE]] for i in range(0, len(inputs), _AT_ONCE)]
    found: list[Outcome] = []
    alone = 0
    for chunk, result in zip(chunks, _run(sandbox, code, chunks), strict=True):
        outcomes_of_chunk = _told(result, len(chunk))
        if outcomes_of_chunk is None:
            tried = chunk[: max(0, _MOST_ALONE - alone)]
            alone += len(tried)
            outcomes_of_chunk = [_alone(sandbox, code, each) for each in tried]
            outcomes_of_chunk += [Unknown()] * (len(chunk) - len(tried))
        found += outcomes_of_chunk
    return found


def _alone(sandbox: Sandbox, code: str, given: list[JsonValue]) -> Outcome:
    """What comes of one input in a process of its own."""
    [result] = _run(sandbox, code, [[given]])
    if told := _told(result, 1):
        return told[0]
    return result if isinstance(result, NoResult) and not result.lost else Unknown()


def _run(sandbox: Sandbox, code: str, chunks: Sequence[list[list[JsonValue]]]) -> list[CallResult]:
    return run_cases(sandbox, code, "outcomes_of_each", [[[*chunk]] for chunk in chunks])


def _told(result: CallResult, count: int) -> list[Outcome] | None:
    """What the harness says of so many inputs; None when it says nothing that makes sense."""
    if not isinstance(result, Value) or not isinstance(result.value, list) or len(result.value) != count:
        return None
    return [_outcome(each) for each in result.value]


def _outcome(told: Any) -> Outcome:
    match told:
        case ["value", value]:
            return Value(value=value)
        case ["raised", [*names]] if all(isinstance(name, str) for name in names):
            return Raised(ancestry=tuple(names), message="")
    return Unknown()
