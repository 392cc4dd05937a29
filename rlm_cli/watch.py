"""Live progress on the terminal: one line per stage, with tokens per second, pass rate and the time that is left."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from rlm_cli.terminal import plain_console
from rlm_core.progress import Progress
from rlm_core.stage_progress import StageBook, StageProgress

_QUIET_EVERY_S = 10.0
"""Between two lines about a stage, without a terminal."""


class Watcher:
    """A progress listener that draws. Use it as a context manager around the work."""

    def __init__(self) -> None:
        self._console = plain_console(stderr=True)
        self._live = self._console.is_terminal
        self._bars = Bars(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[details]}"),
            console=self._console,
        )
        self._book = StageBook()
        self._drawn: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        """Print a line about something slow that is no stage."""
        self._console.print(line)

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
        with self._book.add(progress) as stage:
            if self._live:
                self._draw(stage)
            elif self._book.due(stage, _QUIET_EVERY_S):
                self.say(stage.line())

    def _draw(self, stage: StageProgress) -> None:
        if stage.name not in self._drawn:
            self._drawn[stage.name] = self._bars.add_task(stage.title, total=stage.total, details="")
        self._bars.update(self._drawn[stage.name], completed=stage.done, total=stage.total, details=stage.details())
