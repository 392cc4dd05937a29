"""Value mode: call the answer's function with each case's input, in a sandbox, and compare what comes back, here.

What the cases expect never enters the sandbox, so there is nothing there to find, and what comes back is plain data
that cannot decide what it is equal to. See docs/sandbox.md.
"""

import builtins
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from rlm_core.errors import ProblemError
from rlm_core.records import Case, CaseResult, Problem, Record
from rlm_core.sandbox.child import Answer
from rlm_core.sandbox.inside.wire import Encoder, NotPlain, Tree
from rlm_core.sandbox.limits import Limits
from rlm_core.sandbox.sandbox import Sandbox
from rlm_core.sandbox.session import Session
from rlm_core.sandbox.zygote import Zygote
from rlm_core.verifiers.values import NotJson, is_valid, readable, same, show, to_json

_GARBAGE = "what its process sent is not an answer to what was asked"


class Judgement(Record):
    """What the cases said about one answer."""

    status: Literal["passed", "failed"]
    reason: str = ""
    """Why it failed as a whole, for people; empty when it passed."""
    cases: tuple[CaseResult, ...]
    """One for each case of the problem, in its order."""
    output: str = ""
    """What the code printed, cut to the sandbox's limit."""


class Value(Record):
    """A call that returned a value that JSON can hold."""

    value: JsonValue


class Raised(Record):
    """A call that raised an exception."""

    exception: str
    """The nearest builtin class in its ancestry, which is what `Case.raises` can name."""
    message: str


class Unusable(Record):
    """A call that came to nothing that a case could expect: a crash, a timeout, a set …"""

    reason: str


@dataclass(frozen=True)
class _Exception:
    """An exception as a child described it, checked."""

    ancestry: list[str]
    name: str
    message: str

    def __str__(self) -> str:
        return readable(f"{self.name}: {self.message}" if self.message else self.name)


def judge_cases(sandbox: Sandbox, code: str, problem: Problem) -> Judgement:
    """Run an answer's code against a problem's cases.

    Raises:
        ProblemError: a case cannot be run: too large, too deep, or it expects an exception that does not exist.
        InfrastructureFault: the sandbox failed, twice; this says nothing about the answer.
    """
    encoder = _encoder(sandbox.limits)
    arguments = [_encode(encoder, number, "input", case.input) for number, case in enumerate(problem.cases, 1)]
    expected = [_expected(encoder, number, case) for number, case in enumerate(problem.cases, 1)]

    def job(zygote: Zygote) -> Judgement:
        session = Session(zygote, code, problem.entry_point)
        reason = _why_not_loaded(session.load(), problem.entry_point)
        if reason:
            results = [CaseResult(outcome="not_run")] * len(expected)
        else:
            answers = map(session.call, arguments)
            results = [
                _judge(answer, case, tree, problem, sandbox.limits)
                for answer, case, tree in zip(answers, problem.cases, expected, strict=True)
            ]
        return _sum_up(results, reason, session.output)

    return sandbox.run(job)


def check_cases(problem: Problem, limits: Limits) -> None:
    """See that a problem's cases can be run at all, without running anything.

    Raises:
        ProblemError: naming the problem and the case.
    """
    encoder = _encoder(limits)
    try:
        for number, case in enumerate(problem.cases, 1):
            _encode(encoder, number, "input", case.input)
            _expected(encoder, number, case)
    except ProblemError as error:
        raise ProblemError(f"{problem.entry_point}: {error}") from error


def run_cases(
    sandbox: Sandbox, code: str, entry_point: str, inputs: list[list[JsonValue]]
) -> list[Value | Raised | Unusable]:
    """Call a function on several inputs and return what came, one result for each: for reference solutions.

    Raises:
        InfrastructureFault: the sandbox failed, twice.
    """
    encoder = _encoder(sandbox.limits)
    arguments: list[Tree | Unusable] = []
    for each in inputs:
        try:
            arguments.append(encoder.encode(each))
        except NotPlain as error:
            arguments.append(Unusable(reason=f"the input {error}"))

    def job(zygote: Zygote) -> list[Value | Raised | Unusable]:
        session = Session(zygote, code, entry_point)
        reason = _why_not_loaded(session.load(), entry_point)
        if reason:
            return [Unusable(reason=reason)] * len(arguments)
        return [
            each if isinstance(each, Unusable) else _result(session.call(each), sandbox.limits) for each in arguments
        ]

    return sandbox.run(job)


# ------------------------------------------------------------------------------------------------------- preparation


def _encoder(limits: Limits) -> Encoder:
    return Encoder(limits.nodes, limits.depth, limits.frame_mb)


def _encode(encoder: Encoder, number: int, what: str, value: JsonValue) -> Tree:
    try:
        return encoder.encode(value)
    except NotPlain as error:
        raise ProblemError(f"case {number}: its {what} {error}; see Limits") from error


def _expected(encoder: Encoder, number: int, case: Case) -> Tree:
    """The tree of the value that a case expects, after checking that an exception that it expects exists."""
    if case.raises is None:
        return _encode(encoder, number, "expected value", case.expected)
    kind = getattr(builtins, case.raises, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise ProblemError(f"case {number}: raises {case.raises!r}, which is not a builtin exception")
    return None


# --------------------------------------------------------------------------------------------------------- judgement


def _why_not_loaded(answer: Answer, entry_point: str) -> str:
    """Why there is nothing to call, or "" when there is."""
    if answer.kind == "loaded":
        return ""
    if answer.kind == "missing":
        return f"no function named {entry_point}"
    if answer.kind == "raised":
        return f"does not load: {_exception(answer) or _GARBAGE}"
    return f"does not load: {_why_lost(answer)}"


def _why_lost(answer: Answer) -> str:
    if answer.kind in ("crashed", "not_run"):
        return str(answer.payload)
    return "it took too long" if answer.kind == "timeout" else _GARBAGE


def _exception(answer: Answer) -> _Exception | None:
    """What a child said about an exception, or None when that is not of the right form."""
    match answer.payload:
        case [list(ancestry), str(name), str(message)] if all(isinstance(each, str) for each in ancestry):
            return _Exception(ancestry, name, message)
    return None


def _judge(answer: Answer, case: Case, expected: Tree, problem: Problem, limits: Limits) -> CaseResult:
    """What one answer is worth."""
    if answer.kind == "returned" and is_valid(answer.payload, limits.nodes, limits.depth):
        right = case.raises is None and same(answer.payload, expected, problem.float_tolerance, problem.unordered)
        return CaseResult(outcome="passed") if right else _failed(f"returned {show(answer.payload)}")
    if answer.kind == "unplain" and isinstance(answer.payload, str):
        return _failed(readable(f"returned a value that {answer.payload}"))
    if answer.kind == "raised" and (exception := _exception(answer)):
        # A candidate may forge these names, and gains nothing: it could as well raise the exception.
        if case.raises is not None and case.raises in exception.ancestry:
            return CaseResult(outcome="passed")
        return CaseResult(outcome="raised", detail=f"raised {exception}")
    if answer.kind in ("timeout", "crashed", "not_run"):
        return CaseResult(outcome=answer.kind, detail=_why_lost(answer))
    return CaseResult(outcome="garbage", detail=_GARBAGE)


def _failed(detail: str) -> CaseResult:
    return CaseResult(outcome="failed", detail=detail)


def _sum_up(results: list[CaseResult], reason: str, output: str) -> Judgement:
    failures = sum(result.outcome != "passed" for result in results)
    if not reason and failures:
        reason = f"{failures} of {len(results)} cases failed"
    printed = output.encode("utf-8", "backslashreplace").decode()  # a record has to be able to become JSON
    return Judgement(status="failed" if reason else "passed", reason=reason, cases=tuple(results), output=printed)


def _result(answer: Answer, limits: Limits) -> Value | Raised | Unusable:
    """What one call of a reference came to."""
    if answer.kind == "returned" and is_valid(answer.payload, limits.nodes, limits.depth):
        try:
            return Value(value=to_json(answer.payload))
        except NotJson as error:
            return Unusable(reason=f"returned a value that {error}")
    if answer.kind == "unplain" and isinstance(answer.payload, str):
        return Unusable(reason=readable(f"returned a value that {answer.payload}"))
    if answer.kind == "raised" and (exception := _exception(answer)) and exception.ancestry:
        return Raised(exception=readable(exception.ancestry[0]), message=readable(exception.message))
    return Unusable(reason=_why_lost(answer))
