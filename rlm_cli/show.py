"""`rlm show`: an iteration's pages, from its files alone."""

from rich.markdown import Markdown

from rlm_cli.terminal import plain_console
from rlm_core.errors import UsageError
from rlm_core.pages.html_report import iteration_texts
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of


def show_iteration(project: Project, number: int, as_markdown: bool) -> None:
    """Print an iteration's pages.

    Raises:
        UsageError: there is no such iteration, or it has not ended.
        StageFailed: a file of it is missing or damaged.
    """
    with open_ledger(project.ledger, create=False) as ledger:
        known = [entry.number for entry in ledger.history()]
    if number not in known:
        there = f"{known[0]} to {known[-1]}" if known else "none"
        raise UsageError(f"iteration {number} has not ended in {project.root}; those that have: {there}")
    console = plain_console()
    for text in iteration_texts(project, number, size_of(project.root)):
        if as_markdown:
            print(text)
        else:
            console.print(Markdown(text))
