"""Pytest mode: a person's tests against the answer's code, in two processes of the sandbox; see docs/sandbox.md.

Every test that there is must report for each of its phases that it passed: one that was skipped, expected to fail, or
not heard of fails the answer, and so does one that nobody knows.
"""

import ast
from collections.abc import Sequence

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem, Pytest, parts
from rlm_core.records import CaseResult
from rlm_core.sandbox import Sandbox
from rlm_core.sandbox.text import storable
from rlm_core.sandbox.trial import Findings, TestOutcome, Trial
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.replies import why_not_loaded


def judge(verifier: Pytest, answer: Answer, problem: Problem, bench: Bench) -> Judgement:
    """Judge an answer by the problem's tests, whose ids are known.

    Raises:
        InfrastructureFault: the sandbox failed, twice; this says nothing about the answer.
    """
    assert bench.sandbox is not None
    assert problem.test_ids, "prepare finds the ids out"
    if answer.code is None:
        return Judgement.no_code(len(problem.test_ids))
    return _judged(_run(bench.sandbox, answer.code, verifier, problem.test_questions), problem.test_ids)


def prepare(problem: Problem, sandbox: Sandbox) -> Problem:
    """The problem with the ids of its tests, after a run of its reference or, where it has none, of a stand-in.

    Raises:
        ProblemError: its reference does not pass, or it has none and its tests cannot be collected without.
        InfrastructureFault: the sandbox failed, twice.
    """
    verifier = next(part for part in parts(problem.verifier) if isinstance(part, Pytest))
    if problem.reference is None:
        return _collected(problem, verifier, sandbox)
    findings = _run(sandbox, problem.reference, verifier, None)
    judgement = _judged(findings, tuple(findings.ids or ()))
    if judgement.status != "passed":
        first = next((case for case in judgement.cases if case.outcome != "passed"), None)
        detail = f"; {first.name}: {first.detail}" if first else ""
        raise ProblemError(
            f"{problem.entry_point}: its reference does not pass its own tests here: {judgement.reason}{detail}"
        )
    found_out = {"test_ids": tuple(findings.ids or ()), "test_questions": tuple(sorted(findings.asked))}
    return problem.model_copy(update=found_out)


def _collected(problem: Problem, verifier: Pytest, sandbox: Sandbox) -> Problem:
    """The problem with the ids of its tests, which may ask an answer's objects nothing that holds a value of theirs."""
    findings = _run(sandbox, _stand_in(problem, verifier.tests), verifier, ())
    if not findings.ids:
        reason = findings.reason or "there are no tests"
        raise ProblemError(f"{problem.entry_point}: {reason}; with a reference solution they might be found")
    return problem.model_copy(update={"test_ids": tuple(findings.ids)})


def _stand_in(problem: Problem, tests: str) -> str:
    """Code with the names that the tests import, which does nothing.

    Raises:
        ProblemError: the tests do not say which names these are.
    """
    try:
        imports = [node for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.ImportFrom)]
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ProblemError(f"{problem.entry_point}: its tests are no Python: {error}") from error
    names = {alias.name for node in imports if node.module == "main" for alias in node.names}
    if "*" in names:
        raise ProblemError(
            f"{problem.entry_point}: tests that say `from main import *` need a reference solution that passes them"
        )
    return "".join(f"def {name}(*_, **__): pass\n" for name in sorted(names))


def _run(sandbox: Sandbox, code: str, verifier: Pytest, allowed: Sequence[str] | None) -> Findings:
    return sandbox.run(lambda zygotes: Trial(zygotes, code, verifier.tests, allowed).run())


def _judged(findings: Findings, known: tuple[str, ...]) -> Judgement:
    """What was found, held against the tests that there have to be."""
    results = tuple(_result(name, findings.outcomes.get(name)) for name in known)
    passed = sum(result.outcome == "passed" for result in results)
    reason = _reason(findings, known, passed)
    return Judgement(
        status="failed" if reason else "passed",
        reason=reason,
        score=passed / len(known) if known else 0.0,
        cases=results,
        output=storable(findings.output),
        usage=findings.usage,
    )


def _reason(findings: Findings, known: tuple[str, ...], passed: int) -> str:
    if findings.not_loaded is not None:
        return why_not_loaded(findings.not_loaded)
    if findings.reason:
        return findings.reason
    if not known:
        return "there are no tests"
    if tuple(findings.ids or ()) != known or findings.outcomes.keys() - set(known):
        return "the tests that were found are not the known ones"
    return "" if passed == len(known) else f"{len(known) - passed} of {len(known)} tests failed"


def _result(name: str, outcome: TestOutcome | None) -> CaseResult:
    if outcome is None:
        return CaseResult(name=name, outcome="not_run")
    return CaseResult(name=name, outcome=outcome.kind, detail=outcome.why, latency_ms=outcome.latency_s * 1e3)
