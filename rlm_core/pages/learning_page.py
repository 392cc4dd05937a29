"""A project's page: where it stands, its learning curve, its iterations."""

from collections.abc import Iterator, Sequence

from rlm_core.pages.curve import data_uri, points, svg
from rlm_core.pages.markdown import table
from rlm_core.phrases import COLUMNS, minute, number_of, scores
from rlm_core.records import SuiteComparison
from rlm_core.state.ledger import FinishedIteration

LEGEND = (
    "Each dot is a candidate's score on the benchmark (pass@1); its bar is the interval of the difference from the "
    "incumbent that it was compared with. The lines are the policy that was kept."
)
_SHOWN = 100
"""Newest iterations in the table."""
_REASONS = 10
"""Newest iterations of which it is said why they were decided so."""


def learning_page(project: str, history: Sequence[FinishedIteration], picture: bool = True) -> str:
    """The page in Markdown, with the picture and its legend or without."""
    curve = points(history)
    parts = [f"# {project}: {_standing(history)}"]
    if curve and picture:
        parts += [f"![learning curve]({data_uri(svg(curve))})", LEGEND]
    parts += [iterations_table(history), f"{COLUMNS}; interval: of the difference; kept: the policy that was kept."]
    parts.append("\n".join(_reasons(history)))
    return "\n\n".join(parts) + "\n"


def _reasons(history: Sequence[FinishedIteration]) -> Iterator[str]:
    """Why the newest ones were decided so: below the table, which would be too wide with them."""
    for entry in reversed(history[-_REASONS:]):
        yield f"- iteration {entry.number}, {entry.decision.outcome}: {entry.decision.reason}"


def _standing(history: Sequence[FinishedIteration]) -> str:
    accepted = sum(entry.decision.accepted for entry in history)
    curve = points(history)
    score = f", {curve[0].kept_before:.3f} → {curve[-1].kept:.3f} on the benchmark" if curve else ""
    return f"{number_of(len(history), 'iteration')}, {accepted} accepted{score}"


def iterations_table(history: Sequence[FinishedIteration]) -> str:
    """The iterations, newest first. Narrow, because a page of the UI is."""
    kept = {point.iteration: f"{point.kept:.3f}" for point in points(history)}
    head = ["", "decision", "passed", "benchmark", "interval", "holdout", "kept", "minutes", "ended"]
    rows = [
        [
            str(entry.number),
            entry.decision.outcome,
            f"{entry.summary['pass_rate']:.1%}",
            scores(entry.decision.benchmark),
            _interval(entry.decision.benchmark),
            scores(entry.decision.holdout),
            kept.get(entry.number, "–"),
            f"{entry.summary['duration_s'] / 60:.1f}",
            minute(entry.ended),
        ]
        for entry in reversed(history[-_SHOWN:])
    ]
    return table(head, rows)


def _interval(comparison: SuiteComparison | None) -> str:
    return "–" if comparison is None else f"{comparison.interval[0]:+.3f} to {comparison.interval[1]:+.3f}"
