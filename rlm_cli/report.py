"""`rlm report`: a project's page, from its files alone."""

from pathlib import Path

from rich.markdown import Markdown

from rlm_cli.terminal import plain_console
from rlm_core.errors import UsageError
from rlm_core.files import write_text
from rlm_core.pages.html_report import html_report
from rlm_core.pages.learning_page import learning_page
from rlm_core.state.ledger import open_ledger
from rlm_core.state.project import Project

_FILE = "report.html"


def report_project(project: Project, as_html: bool, output: Path | None) -> None:
    """Print the project's page, or write it as one HTML file.

    Raises:
        UsageError: there is an `output` for what is printed.
        LedgerError: there is no ledger, or it cannot be used.
        StageFailed: the file cannot be written.
    """
    if output is not None and not as_html:
        raise UsageError("--output is for --html")
    console = plain_console()
    with open_ledger(project.ledger, create=False) as ledger:
        if as_html:
            path = write_text(output or project.root / _FILE, html_report(project, ledger))
            console.print(str(path), soft_wrap=True)
        else:
            console.print(Markdown(learning_page(project.root.absolute().name, ledger.history(), picture=False)))
