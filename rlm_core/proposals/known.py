"""What is known already: which problems a proposal must not repeat, by content, by words, by runs of words and code."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlm_core.config import FilterSection
from rlm_core.problems import Problem
from rlm_core.proposals.ngrams import Grams, asked_words
from rlm_core.records import Refusal

_TRAINED = ("corpus", "bank", "batch")
"""Groups that are no exam."""


@dataclass
class _Group:
    """Problems with what they are found by."""

    problems: list[Problem] = field(default_factory=list)
    keys: dict[str | tuple[str, str], str] = field(default_factory=dict)
    """Entry points by what two equal problems have in common."""
    sizes: list[int] = field(default_factory=list)
    """How many shingles each problem has."""
    holders: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """For each shingle, the positions of the problems that have it."""

    def add(self, problem: Problem) -> None:
        own = shingles(problem.prompt)
        for shingle in own:
            self.holders[shingle].append(len(self.problems))
        self.sizes.append(len(own))
        self.problems.append(problem)
        for key in _keys(problem):
            self.keys.setdefault(key, problem.entry_point)

    def nearest(self, own: frozenset[str]) -> tuple[float, str]:
        """Largest similarity of a set of shingles to a problem's, and that one's entry point."""
        shared = Counter(i for shingle in own for i in self.holders.get(shingle, ()))
        found = ((n / (len(own) + self.sizes[i] - n), self.problems[i].entry_point) for i, n in shared.items())
        return max(found, default=(0.0, ""))


class KnownProblems:
    """Problems by group: `corpus`, `bank`, `batch`, and the suites, `benchmark` and `holdout`.

    Similarity is worked out exactly, from the problems that share a shingle with the one in question. With 10,000 known
    problems that takes less time than signatures that estimate it.
    """

    def __init__(self, groups: dict[str, list[Problem]]) -> None:
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        for group, problems in groups.items():
            for problem in problems:
                self.add(group, problem)
        self._exam_grams = [
            (Grams.of(problem), group, problem.entry_point) for group in self.exams for problem in self.problems(group)
        ]

    def add(self, group: str, problem: Problem) -> None:
        """Remember one more problem; exams are complete from the start."""
        self._groups[group].add(problem)

    def problems(self, group: str) -> list[Problem]:
        return self._groups[group].problems

    @property
    def names(self) -> list[str]:
        return list(self._groups)

    @property
    def exams(self) -> list[str]:
        """The groups that are suites."""
        return [group for group in self._groups if group not in _TRAINED]

    def repeated(self, problem: Problem, groups: Iterable[str]) -> tuple[str, str] | None:
        """Group and entry point of a known problem with the same content, or the same prompt and entry point."""
        for group in groups:
            for key in _keys(problem):
                if name := self._groups[group].keys.get(key):
                    return group, name
        return None

    def nearest(self, problem: Problem, groups: Iterable[str]) -> tuple[float, str, str]:
        """Largest Jaccard similarity of word 3-grams to a known problem, with its group and entry point."""
        own = shingles(problem.prompt)
        found = (
            (similarity, group, name) for group in groups for similarity, name in [self._groups[group].nearest(own)]
        )
        return max(found, default=(0.0, "", ""))

    def shown(self, problem: Problem) -> tuple[float, str, str]:
        """Largest share of an exam problem's request or solution that a problem has, with group and entry point."""
        own = Grams.of(problem)
        return max(((each.share_in(own), group, name) for each, group, name in self._exam_grams), default=(0.0, "", ""))


def repeats(problem: Problem, known: KnownProblems, groups: Sequence[str], section: FilterSection) -> Refusal | None:
    """Why a problem is too near to known ones: the same, nearly the same words, or parts of an exam."""
    if found := known.repeated(problem, groups):
        return Refusal(rule="duplicate", reason="the same as {1} of the {0}".format(*found))
    value, group, name = known.nearest(problem, groups)
    limit = section.max_similarity
    if value > limit:
        reason = f"similarity {value:.2f} to {name} of the {group}, at most {limit:g} allowed"
        return Refusal(rule="similar", reason=reason, value=value, limit=limit)
    value, group, name = known.shown(problem)
    limit = section.max_contamination
    if value > limit:
        reason = f"has {value:.0%} of the request or solution of {name} of the {group}, at most {limit:.0%} allowed"
        return Refusal(rule="contaminated", reason=reason, value=value, limit=limit)
    return None


def shingles(prompt: str) -> frozenset[str]:
    """Word 3-grams of what a prompt asks for."""
    words = asked_words(prompt)
    if len(words) < 3:
        return frozenset(words)
    return frozenset(" ".join(words[i : i + 3]) for i in range(len(words) - 2))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """|a ∩ b| / |a ∪ b|, and 0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 0.0


def _keys(problem: Problem) -> tuple[str | tuple[str, str], ...]:
    return problem.id, (problem.prompt, problem.entry_point)
