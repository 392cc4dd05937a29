"""A project's directory: one ledger, one lock, and a directory for each iteration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlm_core.state.lock import Holder, holder_of, locked
from rlm_core.state.run import Run


@dataclass(frozen=True)
class Project:
    """Where a project's files are."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.sqlite"

    @property
    def ledger_backup(self) -> Path:
        return self.root / "ledger.backup.sqlite"

    @property
    def _lock(self) -> Path:
        return self.root / "lock"

    @property
    def proofs(self) -> Path:
        """What was proved of the problems of a bank; see proposals/bank_proofs.py."""
        return self.root / "proofs.json"

    @property
    def runs(self) -> Path:
        """Where the directories of the iterations are."""
        return self.root / "runs"

    def run(self, iteration: int) -> Path:
        """The directory of an iteration's files; `Run` knows what they are called."""
        return self.runs / f"{iteration:04d}"

    def all_runs(self) -> list[Run]:
        """The iterations that have a directory, the first one first."""
        return [Run(path) for path in sorted(self.runs.glob("*"), key=lambda path: (len(path.name), path.name))]

    def holder(self) -> Holder | None:
        """Who holds the project, for people to read; `held` alone is sure."""
        return holder_of(self._lock)

    @contextmanager
    def held(
        self,
        wait_s: float = 0.0,
        flow_run: str | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Holder | None]:
        """Hold the project: one iteration at a time. Arguments and errors are those of `locked`.

        Yields:
            The holder before, when it was killed without letting go.
        """
        with locked(self._lock, wait_s, flow_run, on_wait) as lock:
            yield lock.before
