"""An exam in parts. What is answered and judged is kept part by part, so that a kill costs one of them only."""

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlm_core.config import RolloutSection
from rlm_core.exams.exam import Exam
from rlm_core.files import read_sealed, write_sealed
from rlm_core.problems import Problem
from rlm_core.records import Record, Rollout, Verdict
from rlm_core.seeds import derive_seed
from rlm_core.state.run import PART

_ANSWERS = 64
"""Of a part at most, but for a problem that has more of its own. They are sampled together: how many are decides how
numbers are rounded, so that it is no setting."""


@dataclass(frozen=True)
class Part:
    """Problems that are asked in the same way, all their answers together."""

    number: int
    problems: tuple[Problem, ...]
    section: RolloutSection
    seed: int

    @property
    def answers(self) -> int:
        return len(self.problems) * self.section.group_size


class SatPart(Record):
    """What came of a part."""

    answers: tuple[Rollout, ...]
    verdicts: tuple[Verdict, ...]
    sampling_s: float
    duration_s: float

    @property
    def judged(self) -> bool:
        """Whether every answer was."""
        return all(verdict.judged for verdict in self.verdicts)

    def is_of(self, part: Part) -> bool:
        """Whether these are the answers to the part's problems: a suite is the same in whichever order its problems
        are, and its parts are not."""
        asked = [(problem.id, index) for problem in part.problems for index in range(part.section.group_size)]
        return [(answer.problem_id, answer.index) for answer in self.answers] == asked


def parts_of(exam: Exam) -> list[Part]:
    """The exam's problems in parts; together each of them once."""
    alike: dict[tuple[RolloutSection, int], list[Problem]] = defaultdict(list)
    for problem in exam.suite.problems:
        own = exam.suite.asking(problem).seed
        alike[exam.section(problem), derive_seed(exam.seed if own is None else own, "exam")].append(problem)
    each = max(1, _ANSWERS // exam.samples)
    cut = [(asked, tuple(some[i : i + each])) for asked, some in alike.items() for i in range(0, len(some), each)]
    return [Part(number, problems, *asked) for number, (asked, problems) in enumerate(cut)]


class KeptParts:
    """The parts of one exam that were sat, as files, until its report is there."""

    def __init__(self, stem: Path):
        """Keep them in files whose names begin with `stem`, which names all that decides the answers."""
        self._stem = stem

    def read(self, part: Part) -> SatPart | None:
        """What came of it, unless it was not sat, or the file is not as it was written or of other problems."""
        sat = read_sealed(self._file(part), SatPart)
        return sat if sat and sat.is_of(part) else None

    def write(self, part: Part, sat: SatPart) -> None:
        """Keep a part. One of which an answer could not be judged is not worth it.

        Raises:
            StageFailed: the disk is full or not writable.
        """
        if sat.judged:
            write_sealed(self._file(part), sat)

    def remove(self) -> None:
        """The report is there. What cannot be removed now is left to `rlm prune`."""
        for file in self._stem.parent.glob(f"{self._stem.name}.*{PART}"):
            with suppress(OSError):
                file.unlink()

    def _file(self, part: Part) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{part.number:03d}{PART}")
