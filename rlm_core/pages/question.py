"""A proposed accept as a person is asked about it, in Markdown that fits in a narrow dialog."""

from rlm_core.config import GateSection
from rlm_core.pages.gate_page import compared, heading
from rlm_core.pages.markdown import columns
from rlm_core.records import GateDecision


def question(decision: GateDecision, section: GateSection, until: str) -> str:
    """The reason, the numbers, and what happens without an answer; the decision's page has all else."""
    suites = {"benchmark": decision.benchmark, "holdout": decision.holdout}
    sat = {name: compared(found, section.confidence) for name, found in suites.items() if found is not None}
    parts = [
        *heading(decision, "accept proposed"),
        f"**Without an answer until {until}: {section.unanswered}.**",
        columns(sat),
        "What was gained and lost, with the answers side by side: the page `gate` on the run's Artifacts tab.",
    ]
    return "\n\n".join(parts) + "\n"
