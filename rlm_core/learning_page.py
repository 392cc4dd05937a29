"""A project's page: where it stands, its learning curve, its iterations."""

from collections.abc import Sequence

from rlm_core.curve import Point, data_uri, points, svg
from rlm_core.ledger import Iteration
from rlm_core.markdown import table
from rlm_core.records import SuiteComparison

_SHOWN = 100
"""Newest iterations in the table."""
_BAR = 20


def learning_page(project: str, history: Sequence[Iteration]) -> str:
    """The page in Markdown, the picture within it."""
    curve = points(history)
    parts = [f"# {project}: {_standing(history)}"]
    if curve:
        parts += [f"![learning curve]({data_uri(svg(curve))})", legend()]
    parts.append(iterations_table(history))
    return "\n\n".join(parts) + "\n"


def legend() -> str:
    """What the picture shows, in words."""
    return (
        "Each dot is a candidate's score on the benchmark (pass@1); its bar is the interval of the difference from the "
        "incumbent that it was compared with. The lines are the policy that was kept."
    )


def _standing(history: Sequence[Iteration]) -> str:
    accepted = sum(entry.decision.accepted for entry in history)
    curve = points(history)
    score = f", {curve[0].kept_before:.3f} → {curve[-1].kept:.3f} on the benchmark" if curve else ""
    return f"{len(history)} iterations, {accepted} accepted{score}"


def iterations_table(history: Sequence[Iteration]) -> str:
    """The iterations, newest first, with the kept policy's score as a bar, which is seen where no picture is."""
    bars = {point.iteration: _bar(point) for point in points(history)}
    head = ["iteration", "decision", "passed", "benchmark", "interval", "holdout", "kept", "minutes", "ended"]
    rows = [
        [
            str(entry.number),
            entry.decision.outcome,
            f"{entry.summary['pass_rate']:.1%}",
            _scores(entry.decision.benchmark),
            _interval(entry.decision.benchmark),
            _scores(entry.decision.holdout),
            bars.get(entry.number, ""),
            f"{entry.summary['duration_s'] / 60:.1f}",
            entry.ended,
        ]
        for entry in reversed(history[-_SHOWN:])
    ]
    return table(head, rows)


def _bar(point: Point) -> str:
    return f"{'█' * round(point.kept * _BAR):░<{_BAR}} {point.kept:.3f}"


def _scores(comparison: SuiteComparison | None) -> str:
    return "–" if comparison is None else f"{comparison.incumbent:.3f} → {comparison.candidate:.3f}"


def _interval(comparison: SuiteComparison | None) -> str:
    return "–" if comparison is None else f"{comparison.interval[0]:+.3f} to {comparison.interval[1]:+.3f}"
