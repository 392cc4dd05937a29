"""Which problems the model is shown when it is asked for one: curated ones, and solved ones from the corpus."""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from rlm_core.answers import extract_code
from rlm_core.problems import Cases, Problem
from rlm_core.request import parsed
from rlm_core.seeds import derive_seed
from rlm_core.state.corpus import CorpusAnswer

EXAMPLES = 3
"""Shown with each request."""
_SHOWN_CASES = 5
_LONGEST = 1_200
"""Characters of an example from the corpus: any problem can get there, and every request is read through to its end."""


def examples_for(
    domain: str, bank: Sequence[Problem], solved: Sequence[Problem], count: int, seed: int
) -> list[Problem]:
    """Up to three problems, of the domain where there are such.

    The curated ones come first and the solved ones last, nearest to the request. What the corpus cannot give the bank
    does, so an empty corpus is no fault.

    Args:
        bank: problems to be shown as they are.
        solved: those of the corpus, the most useful first; they are drawn from the more useful half of what fits.
        count: how many of the examples are to be solved ones.
        seed: of this request.
    """
    useful = _of_domain(domain, solved)
    useful = useful[: max(count, (len(useful) + 1) // 2)]
    shown = _drawn(useful, count, derive_seed(seed, "corpus"))
    names = {problem.entry_point for problem in shown}
    others = [problem for problem in bank if problem.entry_point not in names]
    return [*_drawn(_of_domain(domain, others), EXAMPLES - len(shown), seed), *shown]


def solved_problems(corpus: Iterable[CorpusAnswer]) -> list[Problem]:
    """The corpus's problems that can be shown, in its order; one without a solution has the answer that passed."""
    shown = []
    for answer in corpus:
        solution = answer.problem.reference or extract_code(answer.text)
        example = answer.problem.model_copy(update={"reference": solution})
        if solution and judged_by_cases([example]) and len(problem_json(example)) <= _LONGEST:
            shown.append(example)
    return shown


def _of_domain(domain: str, problems: Sequence[Problem]) -> Sequence[Problem]:
    """Those of the domain, or all where there are none."""
    return [problem for problem in problems if problem.domain == domain] or problems


def _drawn(problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    return [problems[i] for i in np.random.default_rng(seed).permutation(len(problems))[:count]]


def judged_by_cases(problems: Iterable[Problem]) -> list[Problem]:
    """Those problems that can serve as a pattern: the model is asked for others of their kind."""
    return [problem for problem in problems if isinstance(problem.verifier, Cases)]


def problem_json(problem: Problem) -> str:
    """A problem in the form in which the model is asked to write one, with its first few cases."""
    asked = parsed(problem.prompt)
    cases = [case for case in problem.cases if not case.raises][:_SHOWN_CASES]
    return json.dumps(
        {
            "id": problem.entry_point,
            "description": asked.what if asked else problem.prompt,
            "signature": problem.signature or problem.entry_point,
            "solution": problem.reference or "",
            "tests": [{"input": case.input, "expected": case.expected} for case in cases],
        },
        ensure_ascii=False,
    )
