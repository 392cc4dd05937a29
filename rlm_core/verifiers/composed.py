"""Verifiers composed of others: what they say, put together. All parts are run, whatever the first ones say."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlm_core.problems import All, Any_, Weighted
from rlm_core.records import CaseResult, Usage
from rlm_core.verifiers.judgement import Judgement

_ROUNDING = 1e-9
"""0.7 and 0.2 and 0.1 do not quite add up to 1."""


@dataclass(frozen=True)
class Part:
    """What one part said."""

    kind: str
    judgement: Judgement
    latency_ms: float = 0.0

    @property
    def passed(self) -> bool:
        return self.judgement.status == "passed"

    @property
    def score(self) -> float:
        return self.judgement.score


def judge_all(_verifier: All, parts: Sequence[Part]) -> Judgement:
    """Passed when every part is; the score is the lowest."""
    failed = [part for part in parts if not part.passed]
    reason = f"{len(failed)} of {len(parts)} parts failed: {_why(failed[0])}" if failed else ""
    return _judgement(parts, min(part.score for part in parts), reason)


def judge_any(_verifier: Any_, parts: Sequence[Part]) -> Judgement:
    """Passed when one part is; the score is the highest."""
    passed = any(part.passed for part in parts)
    best = max(parts, key=lambda part: part.score)
    return _judgement(parts, best.score, "" if passed else f"no part of {len(parts)} passed: {_why(best)}")


def judge_weighted(verifier: Weighted, parts: Sequence[Part]) -> Judgement:
    """The mean of the parts' scores by their weights; passed from `pass_at` on, and then its score is 1."""
    weights = [weight.weight for weight in verifier.of]
    total = math.fsum(weights)
    mean = math.fsum(weight * part.score for weight, part in zip(weights, parts, strict=True)) / total
    if mean >= verifier.pass_at - _ROUNDING:
        return _judgement(parts, 1.0, "")
    failed = next(part for part in parts if not part.passed)
    return _judgement(parts, mean, f"score {mean:.3f}, {verifier.pass_at:g} is needed: {_why(failed)}")


def _judgement(parts: Sequence[Part], score: float, reason: str) -> Judgement:
    return Judgement(
        status="failed" if reason else "passed",
        reason=reason,
        score=score,
        cases=tuple(
            CaseResult(
                name=name,
                outcome="passed" if part.passed else "failed",
                detail=_detail(part),
                latency_ms=part.latency_ms,
            )
            for name, part in zip(_names(parts), parts, strict=True)
        ),
        output="".join(part.judgement.output for part in parts),
        usage=Usage.total([part.judgement.usage for part in parts]),
    )


def _names(parts: Sequence[Part]) -> list[str]:
    """The parts' kinds, numbered where one is there more than once."""
    total, seen = Counter(part.kind for part in parts), Counter[str]()
    names = []
    for part in parts:
        seen[part.kind] += 1
        names.append(f"{part.kind} {seen[part.kind]}" if total[part.kind] > 1 else part.kind)
    return names


def _detail(part: Part) -> str:
    scored = f"; score {part.score:.3f}" if 0 < part.score < 1 else ""
    return part.judgement.reason + scored


def _why(part: Part) -> str:
    return f"{part.kind}: {part.judgement.reason}"
