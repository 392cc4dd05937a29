"""Which adapters there are to serve: those that the ledger's pointers point at now."""

import logging
import threading
from typing import get_args

from rlm_core.errors import AdapterError, LedgerError
from rlm_core.files import FileState, state_of
from rlm_core.model.adapters import check_adapter
from rlm_core.records import AdapterRef, PolicyRef, Record
from rlm_core.state.ledger import Base, PointerName, open_ledger
from rlm_core.state.project import Project

POINTERS: tuple[PointerName, ...] = get_args(PointerName)
FOLLOWED: PointerName = "inference"
"""What answers a request that names nothing else."""

_log = logging.getLogger(__name__)


class Served(Record):
    """A policy that can be asked for."""

    policy: PolicyRef
    iteration: int
    """In which the adapter was made; 0 for the base model and for an adapter that the project was begun with."""

    @property
    def version(self) -> str:
        """What people call it."""
        return f"iteration-{self.iteration}" if self.policy.adapter else "base"

    @property
    def fingerprint(self) -> str:
        """What proves which base and which adapter wrote an answer."""
        return fingerprint_of(self.policy)


def fingerprint_of(policy: PolicyRef) -> str:
    """The `system_fingerprint` of a policy's answers."""
    return f"rlm-{policy.fingerprint}-{policy.name}"


class Pointers:
    """The ledger's pointers, as they were at the last look."""

    def __init__(self, project: Project, base: PolicyRef):
        """
        Args:
            base: with the adapter that the project will be begun with, where it has not been.

        Raises:
            UsageError: the project is about another base model.
            LedgerError: the ledger cannot be used.
        """
        self._ledger = project.ledger
        self._base = base.model_copy(update={"adapter": None})
        self._state: FileState | None = None
        self._lock = threading.Lock()
        first = Served(policy=base, iteration=0)
        self._at: dict[PointerName, Served] = dict.fromkeys(POINTERS, first)
        if self._ledger.is_file():
            self._read()

    def look(self, anew: bool = False) -> None:
        """See whether the ledger was written since. What it then cannot tell stays as it was, and the log says so.

        Args:
            anew: read it in any case. On a file system of several machines its state may be told as it was a minute
                ago; what is opened is as it is.
        """
        with self._lock:
            try:
                if self._ledger.is_file() and (anew or state_of(self._ledger) != self._state):
                    self._read()
            except (LedgerError, OSError) as error:
                _log.warning("the pointers stay where they were: %s", error)

    def _read(self) -> None:
        state = state_of(self._ledger)
        with open_ledger(self._ledger, create=False) as ledger:
            ledger.check_base(Base.of(self._base))
            found = {name: move.adapter for name in POINTERS if (move := ledger.pointer(name))}
            made = {adapter: ledger.made_in(adapter) for adapter in found.values() if adapter}
        self._at |= {name: self._served(name, adapter, made) for name, adapter in found.items()}
        self._state = state

    def _served(self, name: PointerName, adapter: AdapterRef | None, made: dict[AdapterRef, int]) -> Served:
        """What a pointer points at; where it pointed before, when that cannot be served."""
        before = self._at[name]
        if adapter == before.policy.adapter:
            return before
        try:
            if adapter:
                check_adapter(self._base.base, adapter)
        except AdapterError as error:
            _log.warning("%s stays at %s: %s", name, before.version, error)
            return before
        policy = self._base.model_copy(update={"adapter": adapter})
        return Served(policy=policy, iteration=made[adapter] if adapter else 0)

    def at(self, name: PointerName) -> Served:
        return self._at[name]

    def all(self) -> list[Served]:
        """All that can be asked for, each once; the base model without an adapter always can."""
        every = [self._at[FOLLOWED], *self._at.values(), Served(policy=self._base, iteration=0)]
        return list({served.policy.name: served for served in every}.values())

    def names(self, served: Served) -> list[str]:
        """Pointers that point at it."""
        return [name for name in POINTERS if self._at[name] == served]

    def named(self, name: str) -> Served | None:
        """What a version or a digest is the name of."""
        return next((served for served in self.all() if name in (served.version, served.policy.name)), None)
