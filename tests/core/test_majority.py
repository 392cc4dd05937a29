"""Solutions by majority: what most answers compute becomes the solution, and is marked, counted and proved."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlm_core import filter as filtering
from rlm_core.config import FilterSection, GenerateSection, MajoritySection, RolloutSection, VerifySection
from rlm_core.config_file import parse_config
from rlm_core.errors import ConfigError, InfrastructureFault
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.inventions import Inventions, in_words
from rlm_core.problems import Problem, Provenance
from rlm_core.proposals.majority import with_majority_solutions
from rlm_core.records import FileRef, PolicyRef, Rejection, StageResult
from rlm_core.sandbox import Sandbox, open_sandbox
from rlm_core.sources import read_problems
from tests import tiny

FIVE = MajoritySection(answers=5)
DOUBLE = "```python\ndef double(n):\n    return 2 * n\n```"
DOUBLE_TOO = "def double(n):\n    result = n + n\n    return result\n"
SQUARE = "```python\ndef double(n):\n    return n**2\n```"
LACKING = Problem.model_validate(
    {
        "prompt": "Write a Python function `double(n)` that returns twice the integer n.",
        "entry_point": "double",
        "signature": "double(n: int) -> int",
        "cases": [{"input": [n], "expected": 0} for n in (1, 2, 3, 4, 5)],
        "provenance": {"source": "model"},
    }
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


def answering(*texts: str) -> Any:
    return lambda problems: [list(texts) for _ in problems]


def test_what_most_answers_return_is_the_solution_however_it_is_written(sandbox: Sandbox) -> None:
    found = with_majority_solutions([LACKING], answering(SQUARE, DOUBLE_TOO, "no code", DOUBLE, DOUBLE), FIVE, sandbox)
    [solved] = found.proposals
    assert solved.reference == "def double(n):\n    return 2 * n\n"  # the shortest of those that agree
    assert solved.provenance == Provenance(source="model", reference_from="majority")
    assert solved.cases == LACKING.cases  # what was claimed is compared with it later
    assert (found.refused, found.figures) == ((), {"majorities_asked": 1, "majorities_found": 1})


@pytest.mark.parametrize(
    ("texts", "most"),
    [
        ((DOUBLE, DOUBLE_TOO, SQUARE, SQUARE, "no code"), 2),
        (("no code",) * 5, 0),
        (("def double(n):\n    raise ValueError",) * 5, 0),
        (("def double(n):\n    return 1 // (n - 3)",) * 5, 0),
        (("def double(n) return",) * 5, 0),
    ],
    ids=["undecided", "no-code", "all-raise", "one-input-raises", "no-syntax"],
)
def test_without_a_majority_there_is_a_rejection_with_value_and_limit(
    texts: Sequence[str], most: int, sandbox: Sandbox
) -> None:
    found = with_majority_solutions([LACKING], answering(*texts), FIVE, sandbox)
    [(problem, refused)] = found.refused
    assert (problem, found.proposals) == (LACKING, ())
    assert (refused.rule, refused.value, refused.limit) == ("majority", most / 5, 0.6)
    assert f"{most} of 5 answers agree, at least 60% needed" in refused.reason
    assert found.figures == {"majorities_asked": 1, "majorities_found": 0}


def test_only_what_lacks_a_solution_is_asked_and_the_order_stays(sandbox: Sandbox) -> None:
    asked: list[Problem] = []

    def ask(problems: Sequence[Problem]) -> list[list[str]]:
        asked.extend(problems)
        return [[SQUARE] * 5, [DOUBLE, SQUARE] * 2 + ["no code"], [DOUBLE] * 5]

    second, third = (LACKING.model_copy(update={"prompt": LACKING.prompt + word}) for word in (" Now.", " Soon."))
    own = LACKING.model_copy(update={"reference": ""})
    found = with_majority_solutions([tiny.problem(1), LACKING, second, own, third], ask, FIVE, sandbox)
    assert asked == [LACKING, second, third]
    assert [problem.prompt for problem in found.proposals] == [
        problem.prompt for problem in (tiny.problem(1), LACKING, own, third)
    ]
    assert [problem for problem, _ in found.refused] == [second]


def test_by_default_nobody_is_asked(sandbox: Sandbox) -> None:
    def ask(_: object) -> Any:
        pytest.fail("the model was asked")

    found = with_majority_solutions([LACKING], ask, FilterSection().majority, sandbox)
    assert (found.proposals, found.refused, found.asked) == ((LACKING,), (), 0)
    assert with_majority_solutions([tiny.problem(1)], ask, FIVE, sandbox).proposals == (tiny.problem(1),)


def test_a_fault_of_the_machinery_is_no_disagreement() -> None:
    class Broken:
        limits = VerifySection().limits

        def run(self, _: object) -> None:
            raise InfrastructureFault("it is broken")

    broken: Any = Broken()
    [(_, refused)] = with_majority_solutions([LACKING], answering(*[DOUBLE] * 5), FIVE, broken).refused
    assert (refused.rule, refused.reason) == ("infrastructure", "it is broken")
    assert (refused.value, refused.limit) == ("InfrastructureFault", "none")


@pytest.mark.parametrize("content", [{"answers": 1}, {"answers": 2}, {"share": 0.5}, {"share": 1.1}])
def test_less_than_a_majority_cannot_be_asked_for(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"answers|share"):
        MajoritySection.parse(content)


def filtered(directory: Path, majority: dict[str, Any], learner: PolicyRef, proposals: list[Problem]) -> StageResult:
    return filtering.run(
        directory / "run",
        directory / "project",
        [FileRef.of(write_jsonl(directory / "proposals.jsonl", proposals))],
        GenerateSection(problems=3),
        {"benchmark": "bank:benchmark", "holdout": "bank:holdout"},
        FilterSection.parse({"majority": majority}),
        VerifySection(),
        project_seed=0,
        iteration=1,
        learner=learner,
        rollout=RolloutSection(max_tokens=20),
    )


NOBODY = PolicyRef(base="none", fingerprint="none")


def test_a_solution_by_majority_is_proved_marked_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second proposal's majority agrees on one value for all inputs, which the filter's rules refuse."""
    constant = "def seven(n):\n    return 7\n"
    fixed = LACKING.model_copy(update={"entry_point": "seven", "prompt": "Write seven(n), a lucky number for each n."})
    texts = {"double": [DOUBLE] * 5, "seven": [constant] * 5}
    monkeypatch.setattr(
        filtering, "_answers_of", lambda *_: lambda problems: [texts[problem.entry_point] for problem in problems]
    )
    result = filtered(tmp_path, {"answers": 5}, NOBODY, [LACKING, fixed])
    problems = list(read_jsonl(Path(result.files["problems"].path), Problem))
    [kept] = [problem for problem in problems if problem.provenance.reference_from == "majority"]
    assert [case.expected for case in kept.cases] == [2, 4, 6, 8, 10]
    assert kept.provenance.expected_from == "reference"
    rules = [each.rule for each in read_jsonl(Path(result.files["rejections"].path), Rejection)]
    assert rules == ["distinct_outputs"]
    found = Inventions.of([StageResult(figures={"asked": 3}), StageResult(figures={"asked": 1}), result])
    assert (found.majorities_asked, found.majorities_found) == (2, 2)
    assert (found.invented_asked, found.invented, found.claims_wrong) == (4, 1, 10)
    assert "1 of 4 that the model was asked for could be used; 2 of 2 without a solution got one by" in in_words(found)


def test_nothing_is_asked_or_run_for_what_cannot_become_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Problem] = []

    def ask(problems: Sequence[Problem]) -> list[list[str]]:
        asked.extend(problems)
        return [[DOUBLE] * 5 for _ in problems]

    monkeypatch.setattr(filtering, "_answers_of", lambda *_: ask)
    exam = read_problems("bank:benchmark")[0].model_copy(update={"reference": None, "provenance": LACKING.provenance})
    hopeless = {
        "prompt_length": LACKING.model_copy(update={"prompt": "Double n."}),
        "blocked_pattern": LACKING.model_copy(update={"prompt": f"{LACKING.prompt} Use os.system('ls')."}),
        "min_cases": LACKING.model_copy(update={"cases": LACKING.cases[:4]}),
        "duplicate": exam,
    }
    dials = "def f(n):\n    socket.socket()\n    return n + 2\n"
    runs = tiny.problem(2).model_copy(update={"provenance": LACKING.provenance, "reference": dials})
    result = filtered(tmp_path, {"answers": 5}, NOBODY, [*hopeless.values(), runs, LACKING])
    assert asked == [LACKING]
    assert (result.figures["majorities_asked"], result.figures["claims_checked"]) == (1, 5)  # those of `LACKING`
    rules = [each.rule for each in read_jsonl(Path(result.files["rejections"].path), Rejection)]
    assert rules == [*hopeless, "blocked_pattern"]


def test_the_learner_answers_as_in_a_rollout_and_the_same_again(tmp_path: Path, tiny_model: Path) -> None:
    """The tiny model adds 1, 2 or 3 as likely as not, so hardly ever all of nine answers agree."""
    learner = PolicyRef(base=str(tiny_model), fingerprint="f")
    lacking = [tiny.problem(2, i).model_copy(update={"reference": None}) for i in range(3)]

    def rejected() -> list[Rejection]:
        result = filtered(tmp_path, {"answers": 9, "share": 1.0}, learner, lacking)
        return list(read_jsonl(Path(result.files["rejections"].path), Rejection))

    first = rejected()
    assert [each.rule for each in first] == ["majority"] * 3
    assert all(isinstance(each.value, float) and 0 < each.value < 1 for each in first)
    assert rejected() == first


def test_the_setting_is_explained_where_it_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"filter\.majority\.answers = 2: 0 for none, or at least 3"):
        parse_config({"filter": {"majority": {"answers": 2}}})
