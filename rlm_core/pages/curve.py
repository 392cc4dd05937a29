"""The learning curve: each iteration's candidate beside the policy that is kept, as a picture (SVG)."""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlm_core.records import Outcome, SuiteComparison
from rlm_core.state.ledger import FinishedIteration

_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 14, 52
_INK = "#808080"
"""Readable on white and on black: where the picture is shown decides that, and it cannot ask."""
_KEPT, _HOLDOUT = "#2a9d8f", "#b07aa1"
_MARKS = {"accepted": _KEPT, "probation": "#d9902f", "rejected": "#d1495b"}
_TICKS = 5
"""At most, with one of these between them."""
_STEPS = (0.02, 0.05, 0.1, 0.2)
_LABELS = 12
_DRAWN = 250
"""Points at most: three pixels for each."""


@dataclass(frozen=True)
class Point:
    """One iteration on the curve."""

    iteration: int
    outcome: Outcome
    kept_before: float
    kept: float
    """Benchmark score of the incumbent before and after the gate had decided."""
    candidate: float
    low: float
    high: float
    """The candidate's score, as sure as its difference from the incumbent is."""
    holdout_before: float | None
    holdout: float | None
    """Of the incumbent, likewise."""


def points(history: Sequence[FinishedIteration]) -> list[Point]:
    """The iterations that had a candidate, oldest first, since the benchmark is what it is now: others' scores cannot
    be compared with these."""
    compared = [(entry, entry.decision.benchmark) for entry in history if entry.decision.benchmark]
    found = []
    for entry, benchmark in compared:
        if benchmark.suite_digest == compared[-1][1].suite_digest:
            decision = entry.decision
            found.append(
                Point(
                    iteration=entry.number,
                    outcome=decision.outcome,
                    kept_before=benchmark.incumbent,
                    kept=_kept(benchmark, decision.accepted),
                    candidate=benchmark.candidate,
                    low=max(0.0, benchmark.incumbent + benchmark.interval[0]),
                    high=min(1.0, benchmark.incumbent + benchmark.interval[1]),
                    holdout_before=decision.holdout.incumbent if decision.holdout else None,
                    holdout=_kept(decision.holdout, decision.accepted) if decision.holdout else None,
                )
            )
    return found


def _kept(comparison: SuiteComparison, accepted: bool) -> float:
    return comparison.candidate if accepted else comparison.incumbent


def thinned(curve: Sequence[Point]) -> Sequence[Point]:
    """Points at equal distances up to the last one, as many as can be told from each other."""
    every = -(-len(curve) // _DRAWN)
    return curve[(len(curve) - 1) % every :: every] if curve else curve


def svg(curve: Sequence[Point]) -> str:
    """The picture, which needs nothing else; the empty string when there is nothing to show yet.

    Of a long curve not every point is drawn: each iteration has a picture of its own, kept by Prefect, too, and all of
    them together would grow with the square.
    """
    curve = thinned(curve)
    if not curve:
        return ""
    parts = "".join([*_axes(curve), *_lines(curve), *_candidates(curve), *_legend()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="Learning curve" font-family="sans-serif" font-size="11">'
        f"{parts}</svg>"
    )


def data_uri(picture: str) -> str:
    """An SVG as an address that holds it, for an image in Markdown."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"


def _scales(curve: Sequence[Point]) -> tuple[Callable[[float], float], Callable[[float], float], list[float]]:
    """From iteration to x, from score to y, and the scores that have a line."""
    first, last = curve[0].iteration, curve[-1].iteration
    highest = max(max(point.high, point.kept_before, point.kept, point.holdout or 0.0) for point in curve)
    step = next(step for step in _STEPS if highest <= step * _TICKS)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(iteration: float) -> float:
        return _LEFT + width * (iteration - first + 0.5) / (last - first + 1)

    lines = [step * tick for tick in range(max(1, math.ceil(highest / step)) + 1)]
    return x, lambda score: _TOP + height * (1 - score / lines[-1]), lines


def _axes(curve: Sequence[Point]) -> Iterator[str]:
    x, y, lines = _scales(curve)
    for score in lines:
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(score):.1f}" y2="{y(score):.1f}" stroke="{_INK}" '
            f'stroke-opacity="0.3"/>{_text(_LEFT - 6, y(score) + 4, f"{score:.2f}", "end")}'
        )
    every = -(-len(curve) // _LABELS)
    for point in curve[::every]:
        yield _text(x(point.iteration), _HEIGHT - _BOTTOM + 16, str(point.iteration))


def _lines(curve: Sequence[Point]) -> Iterator[str]:
    x, y, _ = _scales(curve)
    # Each begins half an iteration before its first score, the first one at the left edge.
    benchmark = [(point.iteration, point.kept_before, point.kept) for point in curve]
    holdout = [
        (point.iteration, point.holdout_before, point.holdout)
        for point in curve
        if point.holdout_before is not None and point.holdout is not None
    ]
    for colour, dash, scores in ((_KEPT, "", benchmark), (_HOLDOUT, "5 4", holdout)):
        began = [(iteration - 0.5, before) for iteration, before, _ in scores[:1]]
        line = [*began, *((iteration, after) for iteration, _, after in scores)]
        places = " ".join(f"{x(iteration):.1f},{y(score):.1f}" for iteration, score in line)
        yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'


def _candidates(curve: Sequence[Point]) -> Iterator[str]:
    x, y, _ = _scales(curve)
    for point in curve:
        at, colour = x(point.iteration), _MARKS[point.outcome]
        yield (
            f'<g stroke="{colour}"><title>iteration {point.iteration}: {point.outcome}, {point.candidate:.3f} '
            f"({point.low:.3f} to {point.high:.3f})</title>"
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(point.low):.1f}" y2="{y(point.high):.1f}"/>'
            f'<circle cx="{at:.1f}" cy="{y(point.candidate):.1f}" r="4" fill="{colour}"/></g>'
        )


def _legend() -> Iterator[str]:
    entries = [
        (_KEPT, "─ benchmark, kept"),
        (_HOLDOUT, "┄ holdout, kept"),
        *((colour, f"● candidate {outcome}") for outcome, colour in _MARKS.items()),
    ]
    for place, (colour, text) in enumerate(entries):
        yield _text(_LEFT + 140 * place, _HEIGHT - 8, text, "start", colour)


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = _INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
