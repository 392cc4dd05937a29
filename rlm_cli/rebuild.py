"""`rlm doctor --rebuild-ledger`: a damaged ledger made anew."""

from rlm_cli.terminal import plain_console
from rlm_core.state.ledger_backup import rebuild
from rlm_core.state.project import Project


def make_ledger_anew(project: Project) -> None:
    """Make the project's ledger anew and print what of it came back.

    Raises:
        Busy: an iteration is running.
        LedgerError: there is nothing to make it from.
    """
    console = plain_console()
    with project.held():
        rebuilt = rebuild(project)
    source = "its backup and the run directories" if rebuilt.from_backup else "the run directories"
    numbers = ", ".join(map(str, rebuilt.iterations))
    console.print(f"{project.ledger} was made anew from {source}; it has iterations {numbers}", soft_wrap=True)
    for name, reason in rebuilt.left_out.items():
        console.print(f"left out {name}: {reason}", soft_wrap=True)
    if rebuilt.damaged is not None:
        console.print(f"the ledger that was there is now {rebuilt.damaged}", soft_wrap=True)
