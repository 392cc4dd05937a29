"""Whatever a model says: no exception, no file in another place, and what is kept depends on content alone."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlm_core.config import FilterSection, VerifySection
from rlm_core.filter import filter_proposals, refusal
from rlm_core.problems import Problem, Provenance
from rlm_core.proposals.known import KnownProblems
from rlm_core.proposals.parse import collect
from rlm_core.proposals.proof import Prover, open_prover
from rlm_core.records import Refusal
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources import read_problems
from rlm_core.sources.procedural import problems
from rlm_core.written import written
from tests.core.test_generate import almost_proposals

EXAMS = {group: read_problems(f"bank:{group}") for group in ("benchmark", "holdout")}
SECTION = FilterSection()
HOSTILE = [
    "../..",
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "x" * 10_000,
    "\u202etxt.exe",
    "\u200f../..\u200f",
    "C:\\x",
    "..",
    ".",
    "",
    "a/b",
]


class Unproved:
    """Stands for a prover, where nothing is to be run."""

    sandbox: Any = None

    def refusal(self, _problem: Problem, _section: FilterSection) -> None:
        return None


class Remembering:
    """A prover that proves the same solution and cases once, as they come again and again."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._proved: dict[str, Refusal | None] = {}

    @property
    def sandbox(self) -> Sandbox:
        return self._prover.sandbox

    def refusal(self, problem: Problem, section: FilterSection) -> Refusal | None:
        key = problem.model_copy(update={"prompt": "the same"}).model_dump_json()
        if key not in self._proved:
            self._proved[key] = self._prover.refusal(problem, section)
        return self._proved[key]


@pytest.fixture(scope="module")
def prover() -> Iterator[Any]:
    with open_prover(VerifySection()) as opened:
        yield Remembering(opened)


def chosen(proposals: Sequence[Problem], prover: Any) -> list[Problem]:
    return filter_proposals(proposals, [], 0, KnownProblems({}), SECTION, prover)[0]


# ------------------------------------------------------------------------------------------------------- any text


@settings(max_examples=100)
@given(content=almost_proposals, cut=st.integers(0, 400), junk=st.text(max_size=5))
@example(content={"description": "d" * 30, "signature": "f(n)", "tests": [{"input": 1, "expected": 2}]}, cut=0, junk="")
def test_any_text_gives_problems_or_reasons_on_the_way_through_the_filter(
    content: dict[str, Any], cut: int, junk: str
) -> None:
    text = json.dumps(content)
    made, rejected = collect([text[:cut] + junk + text[cut:]], "generate", [Provenance(source="model")], ["maths"])
    lenient = FilterSection(
        prompt_chars=(0, 10**6),
        description_words=(0, 10**6),
        cases_chars=(0, 10**6),
        min_cases=1,
        min_distinct_outputs=1,
        max_trivial_share=1.0,
    )
    prover: Any = Unproved()
    for problem in made:
        plain = problem.model_copy(update={"reference": None})
        refused = refusal(plain, lenient, KnownProblems(EXAMS), prover)
        assert refused is None or refused.reason
    assert [rejection for rejection in rejected if not rejection.reason] == []
    assert len(made) + len(rejected) == 1


@settings(max_examples=100)
@given(code=st.text() | st.text(alphabet="def f(x):\n return[]'\"\\{}#0+"))
@example("(" * 5_000)
@example("def f(x):\n    return f'{x!r:>{10}}'\n")
def test_any_solution_is_compared_with_those_of_exams(code: str) -> None:
    problem = EXAMS["holdout"][0].model_copy(update={"reference": code, "prompt": "Something else that nobody asks."})
    assert 0 <= KnownProblems({"holdout": EXAMS["holdout"][:5]}).shown(problem)[0] <= 1


# -------------------------------------------------------------------------------------------------- ids and names


@settings(max_examples=60)
@given(hostile=st.sampled_from(HOSTILE) | st.text(), field=st.sampled_from(["id", "signature", "description"]))
def test_what_a_model_calls_a_problem_names_no_file(hostile: str, field: str) -> None:
    tests = [{"input": [n], "expected": n + 1} for n in range(5)]
    content = {"id": "f", "signature": "f(n)", "description": "adds one to n", "tests": tests, field: hostile}
    text = json.dumps(content)
    made, rejected = collect([text], "generate", [Provenance(source="model")], ["maths"])
    assert all(re.fullmatch("[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16}", problem.id) for problem in made)
    with TemporaryDirectory() as name:
        outer = Path(name)
        written(outer / "runs" / "0001", "proposals", made, rejected)
        files = sorted(path.relative_to(outer).as_posix() for path in outer.rglob("*") if path.is_file())
    assert files == ["runs/0001/proposals.jsonl", "runs/0001/proposals.rejections.jsonl"]


@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.isidentifier()])
def test_a_function_with_such_a_name_is_no_problem(name: str) -> None:
    text = json.dumps({"signature": f"{name}(n)", "description": "d", "tests": [{"input": [1], "expected": 2}]})
    assert collect([text], "generate", [Provenance(source="model")], ["maths"])[0] == []


# --------------------------------------------------------------------------------------- the choice and the order

WORDS = st.sampled_from(["adds", "drops", "every", "list", "number", "odd"])
SOLUTIONS: dict[str, tuple[str | None, int]] = {
    "right": ("n * n + 1", 5),
    "the-same-otherwise": ("1 + n**2", 5),
    "the-same-up-to-five": ("n * n + 1 if n < 6 else n", 8),
    "another": ("7 * n - 2", 6),
    "wrong": ("n * n + 2", 5),
    "none": (None, 5),
}
"""What is returned, and for how many inputs there are cases. All but one claim to be right for n * n + 1."""


def proposal(words: Sequence[str], name: str, kind: str) -> Problem:
    returned, count = SOLUTIONS[kind]
    expected = {n: 7 * n - 2 if kind == "another" else n if n > 5 else n * n + 1 for n in range(1, count + 1)}
    return Problem.model_validate(
        {
            "prompt": f"Write a Python function `{name}(n)` that {' '.join(words)}.",
            "entry_point": name,
            "cases": [{"input": [n], "expected": value} for n, value in expected.items()],
            "reference": returned and f"def {name}(n):\n    return {returned}\n",
        }
    )


PROPOSALS = st.lists(
    st.builds(
        proposal,
        st.lists(WORDS, min_size=3, max_size=8),
        st.sampled_from(["f", "g"]),
        st.sampled_from(list(SOLUTIONS)),
    ),
    max_size=6,
)


def test_twins_and_proof_are_in_play_where_the_order_is_tried(prover: Any) -> None:
    every = [proposal([kind[:3] + str(i) for i in range(6)], "f", kind) for kind in SOLUTIONS]
    rejections = filter_proposals(every, [], 0, KnownProblems({}), SECTION, prover)[1]
    assert {rejection.rule for rejection in rejections} == {"twin", "reference"}


@settings(max_examples=40)
@given(proposals=PROPOSALS, data=st.data())
def test_what_the_filter_keeps_does_not_depend_on_the_order(
    prover: Any, proposals: list[Problem], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(proposals))
    assert {problem.id for problem in chosen(shuffled, prover)} == {p.id for p in chosen(proposals, prover)}


@settings(max_examples=40)
@given(proposals=PROPOSALS)
def test_what_the_filter_keeps_it_keeps_again(prover: Any, proposals: list[Problem]) -> None:
    kept = chosen(proposals, prover)
    assert chosen(kept, prover) == kept


def test_proved_proposals_are_proved_again_in_any_order() -> None:
    with open_sandbox() as sandbox:
        made = problems(8, 11, 1, {1: 1, 2: 1}, sandbox)
    with open_prover(VerifySection()) as prover:
        kept, _ = filter_proposals([*made, *made[:2]], [], 0, KnownProblems({}), SECTION, prover)
        again, rejections = filter_proposals(kept[::-1], [], 0, KnownProblems({}), SECTION, prover)
    assert len(kept) >= 7
    assert (again, rejections) == (kept[::-1], [])
