"""The rules of the filter that look at a proposal alone, without running anything."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlm_core.config import FilterSection
from rlm_core.problems import Problem
from rlm_core.records import Refusal
from rlm_core.verifiers.trivial import best_trivial_share


@dataclass(frozen=True)
class Objection:
    """What a rule has against a proposal: what was found, and what is allowed."""

    reason: str
    value: float | str
    limit: float | str


Rule = Callable[[Problem, FilterSection], Objection | None]
"""What is wrong with a proposal, or None."""


def _prompt_length(problem: Problem, section: FilterSection) -> Objection | None:
    return _outside(len(problem.prompt), section.prompt_chars, "characters of prompt")


def _description_length(problem: Problem, section: FilterSection) -> Objection | None:
    return _outside(len(problem.prompt.split()), section.description_words, "words of description")


def _cases_length(problem: Problem, section: FilterSection) -> Objection | None:
    return _outside(len(_cases_json(problem)), section.cases_chars, "characters of cases")


def _enough_cases(problem: Problem, section: FilterSection) -> Objection | None:
    distinct = len({json.dumps(case.input, sort_keys=True) for case in problem.cases})
    return _too_few(distinct, section.min_cases, "distinct cases")


def _distinct_outputs(problem: Problem, section: FilterSection) -> Objection | None:
    outputs = {json.dumps([case.raises, case.expected], sort_keys=True) for case in problem.cases}
    yes_or_no = all(isinstance(case.expected, bool) for case in problem.cases)
    needed = min(section.min_distinct_outputs, 2) if yes_or_no else section.min_distinct_outputs
    return _too_few(len(outputs), needed, "distinct outputs")


def _consistent(problem: Problem, _: FilterSection) -> Objection | None:
    outputs: dict[str, str] = {}
    for case in problem.cases:
        key, output = json.dumps(case.input, sort_keys=True), json.dumps([case.raises, case.expected], sort_keys=True)
        if outputs.setdefault(key, output) != output:
            return Objection(f"two cases with input {key[:80]} expect different things", 2, 1)
    return None


def _not_trivial(problem: Problem, section: FilterSection) -> Objection | None:
    share, most = best_trivial_share(problem), section.max_trivial_share
    over = share > most
    reason = f"a trivial answer passes {share:.0%} of the cases, at most {most:.0%} allowed"
    return Objection(reason, share, most) if over else None


def _not_blocked(problem: Problem, section: FilterSection) -> Objection | None:
    text = "\n".join([problem.prompt, problem.signature or "", _cases_json(problem), problem.reference or ""])
    for pattern in section.blocked:
        if found := re.search(pattern, text):
            return Objection(f"{found.group()!r} matches the blocked pattern {pattern}", found.group(), pattern)
    return None


RULES: dict[str, Rule] = {
    "prompt_length": _prompt_length,
    "description_length": _description_length,
    "min_cases": _enough_cases,
    "blocked_pattern": _not_blocked,
    "cases_length": _cases_length,
    "consistent_cases": _consistent,
    "distinct_outputs": _distinct_outputs,
    "trivial": _not_trivial,
}
"""In the order in which they are tried."""
WITHOUT_OUTPUTS = ("prompt_length", "description_length", "min_cases", "blocked_pattern")
"""Those that a proposal must keep as it came, before its solution says what its cases are to expect."""


def broken_rule(problem: Problem, section: FilterSection, names: Iterable[str] = RULES) -> Refusal | None:
    """The first of these rules that a proposal breaks."""
    for name in names:
        if found := RULES[name](problem, section):
            return Refusal(rule=name, reason=found.reason, value=found.value, limit=found.limit)
    return None


def _outside(value: int, bounds: tuple[int, int], what: str) -> Objection | None:
    low, high = bounds
    reason = f"{value} {what}, allowed are {low} to {high}"
    return None if low <= value <= high else Objection(reason, value, low if value < low else high)


def _too_few(value: int, least: int, what: str) -> Objection | None:
    return Objection(f"{value} {what}, at least {least} needed", value, least) if value < least else None


def _cases_json(problem: Problem) -> str:
    return json.dumps([case.model_dump() for case in problem.cases], ensure_ascii=False)
