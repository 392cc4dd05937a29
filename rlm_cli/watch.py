"""Live progress on the terminal: one line per stage, with tokens per second, pass rate and the time that is left."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from rlm_core.progress import Progress
from rlm_core.stage_progress import StageProgress

_QUIET_EVERY_S = 10.0
"""Without a terminal, a line per stage at most this often."""


@dataclass
class _Shown:
    """What of a stage is on the terminal."""

    stage: StageProgress
    printed: float = 0.0
    bar: TaskID | None = None


class Watcher:
    """A progress listener that draws. Use it as a context manager around the work."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._bars = Bars(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[details]}"),
            console=self._console,
        )
        self._stages: dict[str, _Shown] = {}
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Print a line about something slow that is no stage."""
        self._console.print(line, highlight=False)

    def __enter__(self) -> Self:
        if self._live:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._bars.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to somebody else for the time of the block."""
        if self._live:
            self._bars.stop()
        try:
            yield
        finally:
            if self._live:
                self._bars.start()

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            shown = self._stages.setdefault(progress.stage, _Shown(StageProgress(progress.stage)))
            shown.stage.add(progress)
            self._draw(shown)

    def _draw(self, shown: _Shown) -> None:
        stage = shown.stage
        if not self._live:
            if stage.done == stage.total or time.monotonic() - shown.printed >= _QUIET_EVERY_S:
                shown.printed = time.monotonic()
                self.say(stage.line())
            return
        if shown.bar is None:
            shown.bar = self._bars.add_task(stage.title, total=stage.total, details="")
        self._bars.update(shown.bar, completed=stage.done, total=stage.total, details=stage.details())
