"""What is known already: which problems a proposal must not repeat, by content, by words, by runs of words and code.

The exercises of one of reasoning-gym's data sets are made from a template and share most of their words. Of two such
only the same question counts.
"""

from collections import defaultdict
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
    """What problems are called, by what two equal ones have in common."""
    shingles: list[frozenset[str]] = field(default_factory=list)
    """Of each problem."""
    data_sets: list[frozenset[str]] = field(default_factory=list)
    """Of each problem."""
    holders: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """For each shingle, the positions of the problems that have it."""

    def add(self, problem: Problem) -> None:
        own = shingles(problem.prompt)
        for shingle in own:
            self.holders[shingle].append(len(self.problems))
        self.shingles.append(own)
        self.data_sets.append(_data_sets(problem))
        self.problems.append(problem)
        for key in problem.identities:
            self.keys.setdefault(key, problem.called)

    def nearest(self, own: frozenset[str], above: float, data_sets: frozenset[str]) -> tuple[float, str]:
        """Largest similarity of a set of shingles to a problem's, and what that is called; 0 where none is above.

        Problems of these data sets are not looked at.

        Similarity above t takes more than t |own| shared shingles. So only problems are looked at that have one of
        the rarest shingles, so many that what lacks all of them cannot share enough (prefix filtering: Bayardo et al.
        2007, "Scaling up all pairs similarity search"). Common ones, which most problems have, are hardly ever asked.
        """
        rarest = sorted(own, key=lambda shingle: len(self.holders.get(shingle, ())))
        enough = int(above * len(own)) + 1
        nearly = {i for shingle in rarest[: len(own) - enough + 1] for i in self.holders.get(shingle, ())}
        sizes = (above * len(own), len(own) / above if above else float("inf"))
        of_size = (i for i in nearly if sizes[0] < len(self.shingles[i]) < sizes[1])
        candidates = (i for i in of_size if data_sets.isdisjoint(self.data_sets[i]))
        found = ((jaccard(own, self.shingles[i]), self.problems[i].called) for i in candidates)
        return max((each for each in found if each[0] > above), default=(0.0, ""))


class KnownProblems:
    """Problems by group: `corpus`, `bank`, `batch`, and the suites, `benchmark` and `holdout`.

    Similarity is worked out exactly, from the problems that share a rare shingle with the one in question. With 10,000
    known problems that takes less time than signatures that estimate it.
    """

    def __init__(self, groups: dict[str, list[Problem]]) -> None:
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        for group, problems in groups.items():
            for problem in problems:
                self.add(group, problem)
        self._exam_grams = [
            (Grams.of(problem), _data_sets(problem), group, problem.called)
            for group in self.exams
            for problem in self.problems(group)
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
        """Group of a known problem with the same content, or that asks for the same, and what it is called."""
        for group in groups:
            for key in problem.identities:
                if name := self._groups[group].keys.get(key):
                    return group, name
        return None

    def nearest(self, problem: Problem, groups: Iterable[str], above: float = 0.0) -> tuple[float, str, str]:
        """Largest Jaccard similarity of word 3-grams to a known problem, with its group and what it is called.

        Args:
            above: what is not more similar than this is not found; the larger, the fewer problems are looked at.
        """
        own, data_sets = shingles(problem.prompt), _data_sets(problem)
        found = (
            (similarity, group, name)
            for group in groups
            for similarity, name in [self._groups[group].nearest(own, above, data_sets)]
        )
        return max(found, default=(0.0, "", ""))

    def shown(self, problem: Problem) -> tuple[float, str, str]:
        """Largest share of an exam problem's request or solution that a problem has, with its group and its name."""
        own, own_sets = Grams.of(problem), _data_sets(problem)
        found = (
            (each.share_in(own), group, name)
            for each, data_sets, group, name in self._exam_grams
            if own_sets.isdisjoint(data_sets)
        )
        return max(found, default=(0.0, "", ""))


def repeats(problem: Problem, known: KnownProblems, groups: Sequence[str], section: FilterSection) -> Refusal | None:
    """Why a problem is too near to known ones: the same, nearly the same words, or parts of an exam."""
    if found := known.repeated(problem, groups):
        same = "{1} of the {0}".format(*found)
        return Refusal(rule="duplicate", reason=f"the same as {same}", value=same, limit="none")
    limit = section.max_similarity
    value, group, name = known.nearest(problem, groups, above=limit)
    if value > limit:
        reason = f"similarity {value:.2f} to {name} of the {group}, at most {limit:g} allowed"
        return Refusal(rule="similar", reason=reason, value=value, limit=limit)
    value, group, name = known.shown(problem)
    limit = section.max_contamination
    if value > limit:
        reason = f"has {value:.0%} of the request or solution of {name} of the {group}, at most {limit:.0%} allowed"
        return Refusal(rule="contaminated", reason=reason, value=value, limit=limit)
    return None


def _data_sets(problem: Problem) -> frozenset[str]:
    """Those of reasoning-gym that a problem is an exercise of."""
    return frozenset(data_set for data_set, _ in problem.exercises)


def shingles(prompt: str) -> frozenset[str]:
    """Word 3-grams of what a prompt asks for."""
    words = asked_words(prompt)
    if len(words) < 3:
        return frozenset(words)
    return frozenset(" ".join(words[i : i + 3]) for i in range(len(words) - 2))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """|a ∩ b| / |a ∪ b|, and 0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 0.0
