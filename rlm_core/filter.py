"""Which proposals become problems. Every rejection is kept with its rule and reason; nothing unfiltered passes."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlm_core.config import FilterSection, GenerateSection, VerifySection
from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.files import read_jsonl
from rlm_core.generate import written
from rlm_core.ledger import open_ledger
from rlm_core.problems import Case, Problem
from rlm_core.project import Project
from rlm_core.records import FileRef, Rejection, StageResult
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.bank import bank_order
from rlm_core.twins import twin
from rlm_core.verifiers import prepare
from rlm_core.verifiers.cases import Value, judge_cases, run_cases
from rlm_core.verifiers.trivial import best_trivial_share
from rlm_core.verify import open_bench

_SHOWN_CHARS = 2_000


def run(
    directory: Path,
    project: Path,
    proposals: Sequence[FileRef],
    generate: GenerateSection,
    suites: Mapping[str, str],
    section: FilterSection,
    verify: VerifySection,
    project_seed: int,
    iteration: int,
) -> StageResult:
    """The filter stage: proposals and mutants in, `directory/problems.jsonl` out, filled up from the bank.

    Args:
        suites: name of each exam suite by its group, `benchmark` and `holdout`.
    """
    offered = [problem for file in proposals for problem in read_jsonl(Path(file.path), Problem)]
    bank = bank_order(read_problems(generate.bank), project_seed, iteration, generate.problems)
    groups = {group: read_problems(suite) for group, suite in suites.items()} | {"bank": bank}
    with open_ledger(Project(project).ledger) as ledger:
        groups["corpus"] = [problem for problem, _ in ledger.problems()]
    with open_sandbox(verify.sandbox, verify.limits, container=verify.container) as sandbox:
        answered = [with_reference_values(proposal, sandbox) for proposal in offered]
        problems, rejections = filter_proposals(
            answered, bank, generate.problems, KnownProblems(groups), section, sandbox
        )
    with open_bench(verify, problems) as bench:
        problems = prepare(problems, bench, trivial=verify.partial_credit > 0)
    return written(directory, "problems", problems, rejections)


def with_reference_values(proposal: Problem, sandbox: Sandbox) -> Problem:
    """The proposal with expected values that its own solution gives, when that runs on every input.

    Who invents a problem is better at solving it than at working out examples in the head; what a solution computes is
    at least consistent. One that does not run is left to the rules.
    """
    if proposal.reference is None:
        return proposal
    inputs = [case.input for case in proposal.cases]
    try:
        results = run_cases(sandbox, proposal.reference, proposal.entry_point, inputs)
    except InfrastructureFault:
        return proposal
    if not all(isinstance(result, Value) for result in results):
        return proposal
    cases = [Case(input=i, expected=r.value) for i, r in zip(inputs, results, strict=True) if isinstance(r, Value)]
    provenance = proposal.provenance.model_copy(update={"expected_from": "reference"})
    return proposal.model_copy(update={"cases": tuple(cases), "provenance": provenance})


@dataclass
class KnownProblems:
    """What a proposal must not repeat, by group: `corpus`, `bank`, `benchmark`, `holdout`, `batch`."""

    groups: dict[str, list[Problem]] = field(default_factory=dict)
    _shingles: dict[str, list[tuple[str, frozenset[str]]]] = field(default_factory=dict)
    _keys: dict[str, dict[str | tuple[str, str], str]] = field(default_factory=dict)
    """For each group, entry points by what two equal problems have in common."""

    def __post_init__(self) -> None:
        for group, problems in self.groups.items():
            for problem in problems:
                self._index(group, problem)

    def add(self, group: str, problem: Problem) -> None:
        """Remember one more problem."""
        self.groups.setdefault(group, []).append(problem)
        self._index(group, problem)

    @property
    def exams(self) -> list[str]:
        """The groups that are suites."""
        return [group for group in self.groups if group not in ("corpus", "bank", "batch")]

    def repeated(self, problem: Problem, groups: Iterable[str]) -> tuple[str, str] | None:
        """Group and entry point of a known problem with the same content, or the same prompt and entry point."""
        same = (problem.id, (problem.prompt, problem.entry_point))
        for group in groups:
            for key in same:
                if name := self._keys.get(group, {}).get(key):
                    return group, name
        return None

    def nearest(self, problem: Problem, groups: Iterable[str]) -> tuple[float, str, str]:
        """Largest Jaccard similarity of word 3-grams to a known problem, with its group and entry point."""
        own = shingles(problem.prompt)
        best = (0.0, "", "")
        for group in groups:
            for name, other in self._shingles.get(group, []):
                best = max(best, (jaccard(own, other), group, name))
        return best

    def _index(self, group: str, problem: Problem) -> None:
        self._shingles.setdefault(group, []).append((problem.entry_point, shingles(problem.prompt)))
        for key in (problem.id, (problem.prompt, problem.entry_point)):
            self._keys.setdefault(group, {}).setdefault(key, problem.entry_point)


def shingles(prompt: str) -> frozenset[str]:
    """Word 3-grams of what a prompt asks for; the name of the function and the usual opening do not count."""
    asked = re.sub(r"^Write a Python function `[^`]*` that ", "", prompt)
    words = re.findall(r"\w+", asked.lower())
    if len(words) < 3:
        return frozenset(words)
    return frozenset(" ".join(words[i : i + 3]) for i in range(len(words) - 2))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """|a ∩ b| / |a ∪ b|, and 0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 0.0


Rule = Callable[[Problem, FilterSection], str | None]
"""Why a problem is refused, or None."""


def _prompt_length(problem: Problem, section: FilterSection) -> str | None:
    return _outside(len(problem.prompt), section.prompt_chars, "characters of prompt")


def _description_length(problem: Problem, section: FilterSection) -> str | None:
    return _outside(len(problem.prompt.split()), section.description_words, "words of description")


def _cases_length(problem: Problem, section: FilterSection) -> str | None:
    return _outside(len(_cases_json(problem)), section.cases_chars, "characters of cases")


def _enough_cases(problem: Problem, section: FilterSection) -> str | None:
    distinct = len({json.dumps(case.input, sort_keys=True) for case in problem.cases})
    return f"{distinct} distinct cases, at least {section.min_cases} needed" if distinct < section.min_cases else None


def _distinct_outputs(problem: Problem, section: FilterSection) -> str | None:
    outputs = {json.dumps([case.raises, case.expected], sort_keys=True) for case in problem.cases}
    few = len(outputs) < section.min_distinct_outputs
    return f"{len(outputs)} distinct outputs, at least {section.min_distinct_outputs} needed" if few else None


def _consistent(problem: Problem, _: FilterSection) -> str | None:
    outputs: dict[str, str] = {}
    for case in problem.cases:
        key, output = json.dumps(case.input, sort_keys=True), json.dumps([case.raises, case.expected], sort_keys=True)
        if outputs.setdefault(key, output) != output:
            return f"two cases with input {key[:80]} expect different things"
    return None


def _not_trivial(problem: Problem, section: FilterSection) -> str | None:
    share = best_trivial_share(problem)
    over = share > section.max_trivial_share
    return (
        f"a trivial answer passes {share:.0%} of the cases, at most {section.max_trivial_share:.0%} allowed"
        if over
        else None
    )


def _not_blocked(problem: Problem, section: FilterSection) -> str | None:
    text = "\n".join([problem.prompt, problem.signature or "", _cases_json(problem), problem.reference or ""])
    for pattern in section.blocked:
        if found := re.search(pattern, text):
            return f"{found.group()!r} matches the blocked pattern {pattern}"
    return None


RULES: dict[str, Rule] = {
    "prompt_length": _prompt_length,
    "description_length": _description_length,
    "cases_length": _cases_length,
    "min_cases": _enough_cases,
    "consistent_cases": _consistent,
    "distinct_outputs": _distinct_outputs,
    "trivial": _not_trivial,
    "blocked_pattern": _not_blocked,
}
"""The rules that look at a proposal alone, in the order in which they are tried."""


def refusal(problem: Problem, section: FilterSection, known: KnownProblems, sandbox: Sandbox) -> tuple[str, str] | None:
    """The first rule that refuses a proposal, and its reason; None when it may become a problem."""
    for name, rule in RULES.items():
        if reason := rule(problem, section):
            return name, reason
    if repeated := repeats(problem, known, list(known.groups), section.max_similarity):
        return repeated
    return _cannot_be_judged(problem, sandbox) or _asked_in_an_exam(problem, known, sandbox)


def filter_proposals(
    proposals: Sequence[Problem],
    bank: Sequence[Problem],
    wanted: int,
    known: KnownProblems,
    section: FilterSection,
    sandbox: Sandbox,
) -> tuple[list[Problem], list[Rejection]]:
    """The iteration's problems: every proposal that passes all rules, then bank problems up to `wanted`.

    Args:
        proposals: of the model, mutants included; each passes or is rejected with a reason.
        bank: curated problems in the order in which they are to be used. They may come back in later iterations, so
            only likeness to the suites and to this batch counts against them.
        known: problems of earlier iterations (`corpus`), of the `bank` and of both suites.
    """
    problems: list[Problem] = []
    rejections: list[Rejection] = []
    for proposal in proposals:
        refused = refusal(proposal, section, known, sandbox)
        if refused is None:
            problems.append(proposal)
            known.add("batch", proposal)
        else:
            rejections.append(_rejection(proposal, *refused))
    for problem in bank:
        if len(problems) >= wanted:
            break
        others = [group for group in known.groups if group not in ("corpus", "bank")]
        if refused := repeats(problem, known, others, section.max_similarity):
            rejections.append(_rejection(problem, *refused))
            continue
        problems.append(problem)
        known.add("batch", problem)
    return problems, rejections


def repeats(
    problem: Problem, known: KnownProblems, groups: Sequence[str], max_similarity: float
) -> tuple[str, str] | None:
    """Rule and reason when a problem is the same as a known one, or nearly."""
    if found := known.repeated(problem, groups):
        return "duplicate", "the same as {1} of the {0}".format(*found)
    similarity, group, name = known.nearest(problem, groups)
    if similarity > max_similarity:
        return "similar", f"similarity {similarity:.2f} to {name} of the {group}, at most {max_similarity:g} allowed"
    return None


def _cannot_be_judged(problem: Problem, sandbox: Sandbox) -> tuple[str, str] | None:
    """Run the proposal's own solution, or one that does nothing, to see that the cases can be run and are right."""
    code = problem.reference or f"def {problem.entry_point}(*arguments):\n    return None\n"
    try:
        judgement = judge_cases(sandbox, code, problem)
    except ProblemError as error:
        return "cases", str(error)
    except InfrastructureFault as fault:
        return "infrastructure", str(fault)
    if problem.reference is not None and judgement.status != "passed":
        return "reference", f"its own solution fails: {judgement.reason}"
    return None


def _asked_in_an_exam(problem: Problem, known: KnownProblems, sandbox: Sandbox) -> tuple[str, str] | None:
    """Refuse what a suite asks for in other words."""
    asked = [(group, other) for group in known.exams for other in known.groups[group]]
    try:
        found = twin(problem, [other for _, other in asked], sandbox)
    except InfrastructureFault as fault:
        return "infrastructure", str(fault)
    if found is None:
        return None
    group = next(group for group, other in asked if other is found)
    return "twin", f"its own solution passes every case of {found.entry_point} of the {group}"


def _rejection(problem: Problem, rule: str, reason: str) -> Rejection:
    return Rejection(stage="filter", rule=rule, reason=reason, proposal=problem.model_dump_json()[:_SHOWN_CHARS])


def _outside(value: int, bounds: tuple[int, int], what: str) -> str | None:
    low, high = bounds
    return None if low <= value <= high else f"{value} {what}, allowed are {low} to {high}"


def _cases_json(problem: Problem) -> str:
    return json.dumps([case.model_dump() for case in problem.cases], ensure_ascii=False)
