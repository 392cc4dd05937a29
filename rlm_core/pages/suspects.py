"""Answers that look as if they were after the reward and not after the problem, and answers that broke something.

A verdict alone proves no intent. These are the ones that a person should look at first.
"""

from collections.abc import Callable, Iterable

from rlm_core.records import Verdict


def _refused_although_tests_passed(verdict: Verdict) -> bool:
    ran = [case for case in verdict.cases if case.outcome != "not_run"]
    return verdict.status == "failed" and bool(ran) and all(case.outcome == "passed" for case in ran)


def _has(outcome: str) -> Callable[[Verdict], bool]:
    return lambda verdict: any(case.outcome == outcome for case in verdict.cases)


KINDS: dict[str, Callable[[Verdict], bool]] = {
    "refused although its tests passed": _refused_although_tests_passed,
    "tried what the sandbox blocks": lambda verdict: bool(verdict.usage.blocked),
    "gave back what is no value": _has("garbage"),
    "ended its process": _has("crashed"),
    "ran out of time": _has("timeout"),
}
"""Most suspicious first."""


def suspects(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each kind that has any; each verdict stands under the first kind that fits."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        kind = next((kind for kind, fits in KINDS.items() if fits(verdict)), None)
        if kind is not None:
            found.setdefault(kind, []).append(verdict)
    return {kind: found[kind] for kind in KINDS if kind in found}


def why(verdict: Verdict) -> str:
    """What is known about a suspect, in a line."""
    details = [case.detail or case.outcome for case in verdict.cases if case.outcome not in ("passed", "not_run")]
    return "; ".join(filter(None, [", ".join(verdict.usage.blocked), verdict.reason, *details[:1]]))
