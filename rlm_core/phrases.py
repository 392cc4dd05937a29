"""What pages and commands both say, in the same words."""

from collections.abc import Mapping

from rlm_core.records import SuiteComparison
from rlm_core.summary import Summary


def counted(counts: Mapping[str, int]) -> str:
    """`7 (1 min_cases, 6 well_formed)`"""
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{sum(counts.values())} ({parts})" if counts else "0"


def useful_groups(summary: Summary) -> str:
    """`26 useful groups of 48 (3 of these in the place of others)`"""
    instead = f" ({summary.replacements} of these in the place of others)" if summary.replacements else ""
    of = f" of {summary.groups}" if summary.groups else ""  # older summaries do not know
    return f"{summary.useful_groups} useful groups{of}{instead}"


def scores(comparison: SuiteComparison | None) -> str:
    """Incumbent's and candidate's score, or a dash where there was no exam."""
    return "–" if comparison is None else f"{comparison.incumbent:.3f} → {comparison.candidate:.3f}"


def megabytes(size: int) -> str:
    """So many bytes."""
    return f"{size / 1e6:.1f} MB"


def p_text(p: float, equals: str = "") -> str:
    """A p-value in four decimals, or that it is below 0.0001; `equals` stands before the former, such as `= `."""
    return f"{equals}{p:.4f}" if p >= 5e-5 else "< 0.0001"
