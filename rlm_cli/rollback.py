"""`rlm rollback`: go back to what an earlier iteration accepted."""

from rlm_cli.terminal import plain_console
from rlm_core.model.adapters import check_adapter
from rlm_core.state.ledger import open_ledger
from rlm_core.state.ledger_backup import back_up
from rlm_core.state.project import Project


def roll_back(project: Project, base: str, iteration: int) -> None:
    """Point the project at what the iteration accepted, 0 for what it was begun with, and say so.

    Args:
        base: the base model's name, which the adapter must have been made for.

    Raises:
        UsageError: nothing was accepted in that iteration.
        AdapterError: the adapter is gone, damaged or made for another base.
        Busy: an iteration is running.
    """
    with open_ledger(project.ledger, create=False) as ledger, project.held():
        if (adapter := ledger.way_back(iteration).adapter) is not None:
            check_adapter(base, adapter)
        ledger.roll_back(iteration)
        following = ledger.next_iteration()
        back_up(project)  # the run directories do not tell of it
    plain_console().print(
        f"the incumbent is now {adapter.path if adapter else 'the base model itself'}; "
        f"iteration {following} starts from it",
        soft_wrap=True,
    )
