"""A proposed accept as a person is asked about it, in Markdown that fits in a narrow dialog."""

from rlm_core.config import GateSection
from rlm_core.pages.gate_page import heading
from rlm_core.pages.markdown import table
from rlm_core.phrases import p_text
from rlm_core.records import GateDecision, SuiteComparison


def question(decision: GateDecision, section: GateSection, until: str) -> str:
    """The reason, the numbers, and what happens without an answer; the decision's page has all else."""
    suites = {"benchmark": decision.benchmark, "holdout": decision.holdout}
    sat = {name: comparison for name, comparison in suites.items() if comparison is not None}
    columns = [_column(comparison) for comparison in sat.values()]
    names = list(columns[0]) if columns else []
    parts = [
        *heading(decision, "accept proposed"),
        f"**Without an answer until {until}: {section.unanswered}.**",
        table(["", *sat], [[name, *(column[name] for column in columns)] for name in names]),
        "What was gained and lost, with the answers side by side: the page `gate` on the run's Artifacts tab.",
    ]
    return "\n\n".join(parts) + "\n"


def _column(found: SuiteComparison) -> dict[str, str]:
    low, high = found.interval
    return {
        "incumbent": f"{found.incumbent:.3f}",
        "candidate": f"{found.candidate:.3f}",
        "difference": f"{found.difference:+.3f}",
        "interval": f"{low:+.3f} to {high:+.3f}",
        "p if no better": p_text(found.p_value),
        "problems gained": str(found.better),
        "problems lost": str(found.worse),
    }
