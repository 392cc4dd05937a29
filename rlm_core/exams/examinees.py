"""Who can be examined by name: the base model, a project's policies, any adapter, and two that need no model."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

from rlm_core.config import Config
from rlm_core.errors import AdapterError, UsageError
from rlm_core.model.adapters import base_policy, check_adapter, first_adapter, read_adapter
from rlm_core.records import AdapterRef, Examinee, Recited
from rlm_core.state.ledger import is_begun, open_ledger
from rlm_core.state.project import Project
from rlm_core.state.run import Run

RECITED = get_args(Recited.model_fields["recites"].annotation)


def examinee_of(name: str, config: Config, say: Callable[[str], None] = lambda _: None) -> tuple[str, Examinee]:
    """The policy that somebody calls by this name, and what files about it are called.

    Args:
        name: `base`; `incumbent`, the adapter that the project accepted last, or what it begins with; the number of an
            iteration, for the adapter that it made; the directory of an adapter; `reference` for the problems' own
            solutions; `empty` for what they show of a program and nothing more.
        say: called with a line about each slow step, such as fetching the default model.

    Raises:
        UsageError: there is no such policy.
        ModelError, AdapterError: it cannot be used; an adapter is damaged or was made for another base.
        LedgerError: the project has no ledger, or one that cannot be read.
    """
    if name in RECITED:
        return name, Recited.model_validate({"recites": name})
    adapter, label = _adapter_of(name, config)
    if adapter is not None:
        check_adapter(config.model.base, adapter)
    return label, base_policy(config, say).model_copy(update={"adapter": adapter})


def _adapter_of(name: str, config: Config) -> tuple[AdapterRef | None, str]:
    if name == "base":
        return None, name
    project = Project(Path(config.project).absolute())
    if name == "incumbent":
        return _incumbent(project, config), name
    if name.isdecimal():
        return _of_iteration(project, int(name)), f"iteration-{name}"
    if not Path(name).expanduser().is_dir():
        raise UsageError(
            f"there is no policy {name!r}: it is no directory, no number of an iteration, and none of base, incumbent, "
            f"{', '.join(RECITED)}"
        )
    return read_adapter(name), "adapter"


def _incumbent(project: Project, config: Config) -> AdapterRef | None:
    """What the project's ledger says; of a project that was not begun, what it would begin with."""
    if not is_begun(project.ledger):
        return first_adapter(config)
    with open_ledger(project.ledger, create=False) as ledger:
        return ledger.incumbent()


def _of_iteration(project: Project, number: int) -> AdapterRef:
    """The candidate of a finished iteration, with the digest that it had then; of one at work, as it is."""
    with open_ledger(project.ledger, create=False) as ledger:
        finished = {iteration.number: iteration.decision for iteration in ledger.history()}
    if number in finished:
        candidate = finished[number].candidate
        if candidate is None:
            raise UsageError(f"iteration {number} made no adapter: {finished[number].reason}")
        return candidate
    try:
        return read_adapter(Run(project.run(number)).adapter)
    except AdapterError as error:
        made = ", ".join(str(each) for each, decision in finished.items() if decision.candidate) or "none"
        raise UsageError(f"there is no adapter of iteration {number} in {project.root}; there are: {made}") from error
