"""`rlm prune`: remove what nothing needs any more."""

from rich.table import Table

from rlm_cli.terminal import plain_console
from rlm_core.phrases import megabytes
from rlm_core.state.ledger import open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project
from rlm_core.state.prune import removable, remove


def prune_project(project: Project, keep: int, yes: bool) -> None:
    """Show what would go; with `yes`, let it go.

    Raises:
        Busy: an iteration is running.
        StageFailed: something cannot be removed.
    """
    console = plain_console()
    with open_ledger(project.ledger, create=False) as ledger, project.held():
        found = removable(project, ledger, keep)
        table = Table.grid(padding=(0, 2))
        for item in found:
            table.add_row(str(item.path.relative_to(project.root)), megabytes(item.bytes), item.reason)
        console.print(table)
        total = f"{len(found)} items, {megabytes(sum(item.bytes for item in found))}"
        if yes:
            back_up(project)  # what goes is what the ledger would be made anew from
            remove(found)
            console.print(f"removed {total}")
        else:
            console.print(f"would remove {total}; --yes removes them")
