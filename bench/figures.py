"""What all benchmarks print at their end: one line for each figure with its goal, and an exit code."""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn


@dataclass(frozen=True)
class Figure:
    """A measured number and what it is to reach."""

    name: str
    value: float
    goal: float
    sense: Literal["at least", "at most"] = "at least"

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.sense == "at least" else self.value <= self.goal


def print_machine() -> None:
    """Say what is measured on."""
    print(f"machine: {platform.machine()}, {os.cpu_count()} processors, {platform.system()} {platform.release()}")


def finish(figures: Sequence[Figure]) -> NoReturn:
    """Print the figures and end, with 1 when a goal was missed."""
    for figure in figures:
        print(f"{figure.name}: {figure.value:.2f} (goal {figure.sense} {figure.goal:g})")
    sys.exit(int(not all(figure.reached for figure in figures)))
