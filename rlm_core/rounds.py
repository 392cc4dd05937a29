"""Which problems are answered in which shard; and which further ones, where groups had nothing to teach.

This is the dynamic sampling of DAPO (Yu et al. 2025, arXiv 2503.14476). The paper samples until the batch is full of
groups whose rewards differ; here that ends with a budget, as a weak policy would never be done.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from rlm_core import progress
from rlm_core.config import RolloutSection
from rlm_core.files import read_jsonl
from rlm_core.problems import Problem
from rlm_core.records import FileRef, Record, Rollout, StageResult
from rlm_core.state.run import Run


class Shard(Record):
    """Neighbouring problems of a file: the unit of fan-out, retry and caching."""

    number: int
    """Of all the iteration's shards, from 0."""
    source: Literal["problems", "reserve"]
    """The file: the iteration's problems, or those that take the place of useless groups."""
    first: int
    """Position of the first problem in the file."""
    problems: int
    of: int
    """Shards up to the end of its round."""

    @property
    def name(self) -> str:
        """Of its files, and in progress reports."""
        return f"{self.number:03d}"

    @property
    def shown(self) -> str:
        """For people."""
        why = ", in the place of useless groups" if self.source == "reserve" else ""
        return f"shard {self.number + 1}/{self.of}{why}"


class Rounds:
    """An iteration's shards: those of its problems, then, round by round, some of the reserve."""

    def __init__(self, problems: int, reserve: int, size: int):
        """
        Args:
            problems: of the iteration; as many useful groups are aimed at.
            reserve: problems that there are besides, the whole budget.
            size: problems in a shard, at most.
        """
        self._problems, self._reserve, self._size = problems, reserve, size
        self._asked = 0
        self._shards = 0

    @classmethod
    def of(cls, filtered: StageResult, section: RolloutSection) -> "Rounds":
        """Those of what the filter stage gave."""
        problems, reserve = (int(str(filtered.figures[name])) for name in ("problems", "reserve"))
        return cls(problems, reserve, section.shard_problems)

    def first(self) -> list[Shard]:
        """The shards of the iteration's problems."""
        return self._cut("problems", 0, self._problems)

    def next(self, useful: int) -> list[Shard]:
        """Shards of as many further problems as useful groups are lacking; none when the reserve is used up.

        Args:
            useful: groups so far that have something to teach.
        """
        count = min(max(0, self._problems - useful), self._reserve - self._asked)
        self._asked += count
        return self._cut("reserve", self._asked - count, count)

    def _cut(self, source: Literal["problems", "reserve"], start: int, count: int) -> list[Shard]:
        end = start + count
        before, self._shards = self._shards, self._shards + -(-count // self._size)
        return [
            Shard(
                number=before + i,
                source=source,
                first=first,
                problems=min(self._size, end - first),
                of=self._shards,
            )
            for i, first in enumerate(range(start, end, self._size))
        ]


def announce(shards: Sequence[Shard], section: RolloutSection) -> None:
    """Report the work that is to come, so that a watcher knows the whole of it."""
    for shard in shards:
        for stage in ("rollout", "verify"):
            progress.report(stage, 0, shard.problems * section.group_size, part=shard.name)


@lru_cache(maxsize=2)
def problems_of(file: FileRef) -> dict[str, Problem]:
    """The problems of a file that shards are of, in its order, by their ids.

    Read once: each of an iteration's shards wants some of them, so what all of them read would grow with the square.

    Raises:
        StageFailed: the file is missing, or a line is no problem.
    """
    return {problem.id: problem for problem in read_jsonl(Path(file.path), Problem)}


def asked_problems(run: Run, rollouts: Sequence[Rollout]) -> list[Problem]:
    """The iteration's problems, and those of its reserve that were answered, from its directory.

    Raises:
        StageFailed: a line is no problem.
    """
    answered = {rollout.problem_id for rollout in rollouts}
    spare = read_jsonl(run.reserve, Problem) if run.reserve.is_file() else []
    return [*read_jsonl(run.made("problems"), Problem), *(each for each in spare if each.id in answered)]
