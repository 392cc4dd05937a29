"""The pages of a project and its iterations, as texts and as files in the run's directory."""

from pathlib import Path

from rlm_core.files import write_text
from rlm_core.pages.iteration_page import iteration_page, read_ended
from rlm_core.pages.learning_page import learning_page
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of
from rlm_core.state.run import Run


def write_pages(root: Path, number: int) -> dict[str, str]:
    """Write the pages of an iteration that the ledger has, as `iteration.md` and `learning.md`; their texts by name.

    Raises:
        StageFailed: a file of the iteration is missing or damaged, or a page cannot be written.
        LedgerError: the ledger cannot be used.
    """
    project = Project(root)
    with open_ledger(project.ledger, create=False) as ledger:
        history = [entry for entry in ledger.history() if entry.number <= number]
    pages = {
        "iteration": iteration_page(read_ended(project, number, size_of(project.root))),
        "learning": learning_page(root.name, history),
    }
    for name, text in pages.items():
        write_text(Run(project.run(number)).page(name), text)
    return pages


def were_written(project: Project, number: int) -> bool:
    """Whether an iteration has its pages."""
    return Run(project.run(number)).page("iteration").exists()
