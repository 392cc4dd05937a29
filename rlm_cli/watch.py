"""Live progress on the terminal: one line per stage, with tokens per second, pass rate and the time that is left."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from rlm_core.progress import Progress

_NAMES = {
    "generate": "generate (proposals)",
    "mutate": "mutate (variations)",
    "rollout": "rollout (answers)",
    "verify": "verify (answers)",
    "train": "train (steps)",
    "evaluate": "evaluate (answers)",
    "evaluate_verify": "evaluate (judged)",
}
_QUIET_EVERY_S = 10.0
"""Without a terminal, a line per stage at most this often."""


@dataclass
class _Stage:
    """What is known of one stage, over all its parts."""

    name: str
    parts: dict[str, Progress] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    first_done: float | None = None
    printed: float = 0.0
    bar: TaskID | None = None

    @property
    def done(self) -> int:
        return sum(part.done for part in self.parts.values())

    @property
    def total(self) -> int:
        return sum(part.total for part in self.parts.values())

    def figure(self, name: str) -> float:
        return sum(part.figures.get(name, 0.0) for part in self.parts.values())

    def details(self) -> str:
        """Tokens per second, pass rate and estimated time left, those of them that the stage has."""
        words = []
        elapsed = time.monotonic() - self.started
        if tokens := self.figure("tokens"):
            seconds = self.figure("seconds") or elapsed
            words.append(f"{tokens / max(seconds, 1e-9):.0f} tokens/s")
        if self.name in ("verify", "evaluate_verify") and self.done:
            words.append(f"{self.figure('passed') / self.done:.0%} passed")
        found = int(self.figure("found"))
        if found < self.done < self.total:
            words.append(f"about {elapsed / (self.done - found) * (self.total - self.done):.0f} s left")
        if found:
            words.append(f"{found} were finished before")
        return ", ".join(words)


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
        self._stages: dict[str, _Stage] = {}
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
            stage = self._stages.setdefault(progress.stage, _Stage(progress.stage))
            if progress.total == 0:  # a sign of life between two steps
                return
            if stage.figure("tokens") == 0 and progress.figures.get("tokens"):
                stage.started = time.monotonic() - progress.figures.get("seconds", 0.0)
            stage.parts[progress.part] = progress
            self._draw(stage)

    def _draw(self, stage: _Stage) -> None:
        title = _NAMES.get(stage.name, stage.name)
        if not self._live:
            finished = stage.done == stage.total
            if finished or time.monotonic() - stage.printed >= _QUIET_EVERY_S:
                stage.printed = time.monotonic()
                self.say(f"{title}: {stage.done} of {stage.total}  {stage.details()}")
            return
        if stage.bar is None:
            stage.bar = self._bars.add_task(title, total=stage.total, details="")
        self._bars.update(stage.bar, completed=stage.done, total=stage.total, details=stage.details())
