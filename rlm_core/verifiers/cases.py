"""Value mode: call the answer's function with each case's input, in a sandbox, and compare what comes back, here.

What the cases expect never enters the sandbox, so there is nothing there to find, and what comes back is plain data
that cannot decide what it is equal to. See docs/sandbox.md.
"""

from pydantic import JsonValue

from rlm_core.errors import ProblemError
from rlm_core.problems import Case, Cases, Problem
from rlm_core.records import CaseResult, Record
from rlm_core.sandbox.child import Reply
from rlm_core.sandbox.inside.wire import Encoder, NotPlain, Tree
from rlm_core.sandbox.limits import Limits
from rlm_core.sandbox.sandbox import Sandbox, Zygotes
from rlm_core.sandbox.session import Session
from rlm_core.sandbox.text import GARBAGE, readable, storable
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.replies import exception_of, why_lost, why_not_loaded
from rlm_core.verifiers.values import NotJson, is_valid, same, show, to_json


class Value(Record):
    """A call that returned a value that JSON can hold."""

    value: JsonValue


class Raised(Record):
    """A call that raised an exception."""

    ancestry: tuple[str, ...]
    """The builtin classes that it belongs to, the nearest first: what `Case.raises` can name."""
    message: str


class NoResult(Record):
    """A call that came to nothing that a case could expect: a crash, a timeout, a set …"""

    reason: str
    lost: bool = False
    """Whether the call gave no answer at all: its process was lost, or late, or there was none left to run it."""


CallResult = Value | Raised | NoResult
"""What one call of a reference came to."""


def judge(_verifier: Cases, answer: Answer, problem: Problem, bench: Bench) -> Judgement:
    """Judge an answer by the problem's cases; see `judge_cases`."""
    assert bench.sandbox is not None
    if answer.code is None:
        return Judgement.no_code(len(problem.cases))
    return judge_cases(bench.sandbox, answer.code, problem)


def judge_cases(sandbox: Sandbox, code: str, problem: Problem, to_the_end: bool = True) -> Judgement:
    """Run an answer's code against a problem's cases.

    Args:
        to_the_end: whether the cases after the first that is not passed are run, too; else they count as not run.

    Raises:
        ProblemError: a case cannot be run: it is too large or too deep.
        InfrastructureFault: the sandbox failed, twice; this says nothing about the answer.
    """
    encoder = encoder_for(sandbox.limits)
    arguments = [_encode(encoder, number, "input", case.input) for number, case in enumerate(problem.cases, 1)]
    expected = [_expected(encoder, number, case) for number, case in enumerate(problem.cases, 1)]

    def job(zygotes: Zygotes) -> Judgement:
        session = Session(zygotes.code, code, problem.entry_point)
        reason = why_not_loaded(session.load(), problem.entry_point)
        if reason:
            results = [CaseResult(outcome="not_run")] * len(expected)
        else:
            results = []
            for tree, case, wanted in zip(arguments, problem.cases, expected, strict=True):
                if not to_the_end and results and results[-1].outcome != "passed":
                    results += [CaseResult(outcome="not_run")] * (len(expected) - len(results))
                    break
                result = _judge(session.call(tree), case, wanted, problem, sandbox.limits)
                results.append(result.model_copy(update={"latency_ms": session.latency_s * 1e3}))
        return _sum_up(results, reason, session)

    return sandbox.run(job)


def check_cases(problem: Problem, limits: Limits) -> None:
    """See that a problem's cases can be run at all, without running anything.

    Raises:
        ProblemError: naming the case.
    """
    encoder = encoder_for(limits)
    for number, case in enumerate(problem.cases, 1):
        _encode(encoder, number, "input", case.input)
        _expected(encoder, number, case)


def run_cases(sandbox: Sandbox, code: str, entry_point: str, inputs: list[list[JsonValue]]) -> list[CallResult]:
    """Call a function on several inputs and return what came, one result for each: for reference solutions.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    encoder = encoder_for(sandbox.limits)
    arguments: list[Tree | NoResult] = []
    for each in inputs:
        try:
            arguments.append(encoder.encode(each))
        except NotPlain as error:
            arguments.append(NoResult(reason=f"the input {error}"))

    def job(zygotes: Zygotes) -> list[CallResult]:
        session = Session(zygotes.code, code, entry_point)
        reason = why_not_loaded(session.load(), entry_point)
        if reason:
            return [NoResult(reason=reason)] * len(arguments)
        return [
            each if isinstance(each, NoResult) else _result(session.call(each), sandbox.limits) for each in arguments
        ]

    return sandbox.run(job)


def passes(case: Case, result: CallResult, problem: Problem, encoder: Encoder) -> bool:
    """Whether a result is what a case of the problem expects, as when an answer is judged."""
    match result:
        case Value():
            return _is_expected(encoder.encode(result.value), case, encoder.encode(case.expected), problem)
        case Raised():
            return case.raises in result.ancestry
    return False


# ------------------------------------------------------------------------------------------------------- preparation


def encoder_for(limits: Limits) -> Encoder:
    """What brings values into the form in which they are compared, within the limits."""
    return Encoder(limits.nodes, limits.depth, limits.frame_mb)


def _encode(encoder: Encoder, number: int, what: str, value: JsonValue) -> Tree:
    try:
        return encoder.encode(value)
    except NotPlain as error:
        raise ProblemError(f"case {number}: its {what} {error}; see Limits") from error


def _expected(encoder: Encoder, number: int, case: Case) -> Tree:
    """The tree of the value that a case expects, or None when it expects an exception."""
    return _encode(encoder, number, "expected value", case.expected) if case.raises is None else None


# --------------------------------------------------------------------------------------------------------- judgement


def _judge(reply: Reply, case: Case, expected: Tree, problem: Problem, limits: Limits) -> CaseResult:
    """What one answer is worth."""
    if reply.kind == "returned" and is_valid(reply.payload, limits.nodes, limits.depth):
        right = _is_expected(reply.payload, case, expected, problem)
        return CaseResult(outcome="passed") if right else _failed(f"returned {show(reply.payload)}")
    if reply.kind == "unplain" and isinstance(reply.payload, str):
        return _failed(readable(f"returned a value that {reply.payload}"))
    if reply.kind == "raised" and (exception := exception_of(reply)):
        # A candidate may forge these names, and gains nothing: it could as well raise the exception.
        if case.raises in exception.ancestry:
            return CaseResult(outcome="passed")
        return CaseResult(outcome="raised", detail=f"raised {exception}")
    if reply.kind in ("timeout", "crashed", "not_run"):
        return CaseResult(outcome=reply.kind, detail=why_lost(reply))
    return CaseResult(outcome="garbage", detail=GARBAGE)


def _is_expected(returned: Tree, case: Case, expected: Tree, problem: Problem) -> bool:
    return case.raises is None and same(returned, expected, problem.float_tolerance, problem.unordered)


def _failed(detail: str) -> CaseResult:
    return CaseResult(outcome="failed", detail=detail)


def _sum_up(results: list[CaseResult], reason: str, session: Session) -> Judgement:
    failures = sum(result.outcome != "passed" for result in results)
    if not reason and failures:
        reason = f"{failures} of {len(results)} cases failed"
    return Judgement(
        status="failed" if reason else "passed",
        reason=reason,
        score=1 - failures / len(results),
        cases=tuple(results),
        output=storable(session.output),
        usage=session.finish(),
    )


def _result(reply: Reply, limits: Limits) -> CallResult:
    if reply.kind == "returned" and is_valid(reply.payload, limits.nodes, limits.depth):
        try:
            return Value(value=to_json(reply.payload))
        except NotJson as error:
            return NoResult(reason=f"returned a value that {error}")
    if reply.kind == "unplain" and isinstance(reply.payload, str):
        return NoResult(reason=readable(f"returned a value that {reply.payload}"))
    if reply.kind == "raised" and (exception := exception_of(reply)) and exception.ancestry:
        return Raised(ancestry=tuple(map(readable, exception.ancestry)), message=readable(exception.message))
    return NoResult(reason=why_lost(reply), lost=True)
