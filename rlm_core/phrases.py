"""What pages and commands both say, in the same words."""

from collections.abc import Mapping

from pydantic import JsonValue

from rlm_core.records import SuiteComparison
from rlm_core.summary import Summary

COLUMNS = "passed: the training's answers; benchmark and holdout: pass@1 of the incumbent → of the candidate"
"""What is in the columns of a table of iterations."""


def minute(time: str) -> str:
    """An ISO time as people read one in a list: `01-04 02:00`."""
    return time[5:16].replace("T", " ")


def counted(counts: Mapping[str, int]) -> str:
    """`7 (1 min_cases, 6 well_formed)`"""
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{sum(counts.values())} ({parts})" if counts else "0"


def number_of(count: int, thing: str) -> str:
    """`1 step`, `2 steps`"""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def groups_in_words(summary: Summary) -> str:
    """`26 useful groups of 48 (3 of these in the place of others)`"""
    instead = f" ({summary.replacements} of these in the place of others)" if summary.replacements else ""
    of = f" of {summary.groups}" if summary.groups else ""  # older summaries do not know
    return f"{number_of(summary.useful_groups, 'useful group')}{of}{instead}"


def scores(comparison: SuiteComparison | None) -> str:
    """Incumbent's and candidate's score, or a dash where there was no exam."""
    return "–" if comparison is None else f"{comparison.incumbent:.3f} → {comparison.candidate:.3f}"


def megabytes(size: int) -> str:
    """So many bytes."""
    return f"{size / 1e6:.1f} MB"


def p_text(p: float, equals: str = "") -> str:
    """A p-value in four decimals, or that it is below 0.0001; `equals` stands before the former, such as `= `."""
    return f"{equals}{p:.4f}" if p >= 5e-5 else "< 0.0001"


def figures_in_words(figures: Mapping[str, JsonValue]) -> str:
    """A stage's figures in a line: `steps 6, reward mean 0.278, duration 6.014 s`. Lists are left out."""
    return ", ".join(_figure(name, value) for name, value in figures.items() if not isinstance(value, list))


def _figure(name: str, value: JsonValue) -> str:
    words = name.removesuffix("_s").replace("_", " ")
    if isinstance(value, dict):
        return f"{words} {', '.join(f'{key} = {_shown(each)}' for key, each in value.items())}"
    return f"{words} {_shown(value)}{' s' if name.endswith('_s') else ''}"


def _shown(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{round(value, 3):g}" if isinstance(value, float) else str(value)
