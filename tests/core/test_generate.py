"""The model's proposals: what can be used becomes a problem, all else a rejection, and nothing a crash."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlm_core.config import FilterSection, GenerateSection, SourceName, VerifySection
from rlm_core.config_file import load_config, parse_config
from rlm_core.errors import ConfigError
from rlm_core.examples import problem_json
from rlm_core.files import read_jsonl
from rlm_core.filter import filter_proposals
from rlm_core.generate import run
from rlm_core.model.decoding import Completion, Request
from rlm_core.problems import Case, Problem, Provenance
from rlm_core.proposals.known import KnownProblems
from rlm_core.proposals.parse import collect, parse_proposal
from rlm_core.proposals.proof import open_prover
from rlm_core.proposers import PROPOSERS, model
from rlm_core.proposers.model import invented, proposal_turns
from rlm_core.proposers.procedural import used_up
from rlm_core.records import PolicyRef, Rejection
from rlm_core.sources import read_problems
from tests.doc_page import steps

MODEL = Provenance(source="model")
NOBODY = PolicyRef(base="none", fingerprint="none")
PROPOSAL: dict[str, Any] = {
    "id": "add",
    "description": "adds a and b.",
    "signature": "add(a: int, b: int) -> int",
    "tests": [{"input": [1, 2], "expected": 3}, {"input": [0, 0], "expected": 0}],
    "solution": "def add(a, b):\n    return a + b",
}
JSON = json.dumps(PROPOSAL)
PROBLEM = Problem(
    prompt="Write a Python function `add(a: int, b: int)` that adds a and b.",
    entry_point="add",
    signature="add(a: int, b: int) -> int",
    domain="maths",
    cases=(Case(input=[1, 2], expected=3), Case(input=[0, 0], expected=0)),
    reference="def add(a, b):\n    return a + b",
    provenance=MODEL,
)


def parse(text: str) -> Problem:
    return parse_proposal(text, MODEL, "maths")


def collected(text: str) -> Problem | Rejection:
    problems, rejections = collect([text], "generate", [MODEL], ["maths"])
    assert len(problems) + len(rejections) == 1
    return problems[0] if problems else rejections[0]


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        json.dumps(PROPOSAL, indent=2),
        f"Here is one:\n\n```json\n{JSON}\n```\nI hope that it is of use {{really}}.",
        f"```\n{JSON}",
        f"[{JSON}, {json.dumps(PROPOSAL | {'id': 'second'})}]",
        JSON.replace('"signature": "add', '"signature": "def add').replace("-> int", "-> int:"),
        JSON.replace('"', "'"),
        JSON[:-1] + ",}",
    ],
    ids=["clean", "indented", "fenced", "unclosed-fence", "list", "def-and-colon", "single-quotes", "trailing-comma"],
)
def test_a_proposal_is_understood_however_it_is_wrapped(text: str) -> None:
    assert parse(text) == PROBLEM


def test_what_was_written_before_the_end_came_is_kept() -> None:
    cut = JSON[: JSON.index(', "solution"')]
    assert parse(cut) == PROBLEM.model_copy(update={"reference": None})


def test_one_argument_needs_no_list() -> None:
    tests = [{"input": "ab", "expected": 2}, {"input": {"a": 1}, "expected": None}]
    assert parse(json.dumps(PROPOSAL | {"tests": tests})).cases == (
        Case(input=["ab"], expected=2),
        Case(input=[{"a": 1}], expected=None),
    )


@pytest.mark.parametrize("solution", ["", "  ", None, 5, ["def add(a, b): ..."]])
def test_a_solution_that_is_no_text_is_none(solution: Any) -> None:
    assert parse(json.dumps(PROPOSAL | {"solution": solution})).reference is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object in the answer"),
        ("I cannot think of any.", "no JSON object in the answer"),
        ("[1, 2, 3]", "no JSON object in the answer"),
        ("{{{{]]]]", "no JSON object in the answer"),
        ("{}", "signature and description must be texts"),
        (
            json.dumps({k: v for k, v in PROPOSAL.items() if k != "signature"}),
            "signature and description must be texts",
        ),
        (json.dumps(PROPOSAL | {"description": ["adds"]}), "signature and description must be texts"),
        (json.dumps(PROPOSAL | {"description": " "}), "signature and description must be texts"),
        (json.dumps({k: v for k, v in PROPOSAL.items() if k != "tests"}), "tests must be a list"),
        (json.dumps(PROPOSAL | {"tests": {"input": [1], "expected": 1}}), "tests must be a list"),
        (json.dumps(PROPOSAL | {"tests": "assert add(1, 2) == 3"}), "tests must be a list"),
        (json.dumps(PROPOSAL | {"tests": ["assert add(1, 2) == 3"]}), "each test needs input and expected"),
        (json.dumps(PROPOSAL | {"tests": [{"input": [1]}]}), "each test needs input and expected"),
        (json.dumps(PROPOSAL | {"tests": []}), "cases: at least one is needed"),
        (
            json.dumps(PROPOSAL | {"signature": "os.system('ls')"}),
            "entry_point: must be a Python identifier",
        ),
        (json.dumps(PROPOSAL | {"signature": ""}), "entry_point: must be a Python identifier"),
        (JSON.replace("[1, 2]", "[1e999, 2]"), "Out of range float values are not JSON compliant"),
        (JSON.replace("[1, 2]", '["\\ud800", 2]'), "record: Invalid JSON"),
    ],
    ids=range(18),
)
def test_an_unusable_answer_is_a_rejection_with_a_reason(text: str, reason: str) -> None:
    rejection = collected(text)
    assert isinstance(rejection, Rejection)
    assert (rejection.stage, rejection.rule, rejection.proposal) == ("generate", "well_formed", text)
    assert (rejection.value, rejection.limit) == (0, 1)
    assert rejection.reason.startswith(reason)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' * 5_000,
        "{" * 3_000,
        '{"tests": ' + "[" * 50_000,
        JSON.replace("[1, 2]", "[" * 400 + "]" * 400),
        JSON.replace("[1, 2]", "[" * 20_000 + "]" * 20_000),
    ],
    ids=["objects", "braces", "lists", "a-deep-value", "a-very-deep-value"],
)
def test_an_answer_nested_too_deep_is_a_rejection_cut_to_a_readable_length(text: str) -> None:
    rejection = collected(text)
    assert isinstance(rejection, Rejection)
    assert rejection.reason
    assert rejection.proposal == text[:2_000]


def test_problems_and_rejections_keep_their_order_and_origin() -> None:
    mutation = Provenance(source="mutation", parent="p")
    texts = [JSON, "nothing", JSON.replace("add(", "plus("), ""]
    problems, rejections = collect(texts, "mutate", [MODEL, MODEL, mutation, mutation], ["maths", "dp", "dp", "dp"])
    assert [(p.entry_point, p.domain, p.provenance) for p in problems] == [
        ("add", "maths", MODEL),
        ("plus", "dp", mutation),
    ]
    assert [(r.stage, r.proposal) for r in rejections] == [("mutate", "nothing"), ("mutate", "")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
almost_proposals = st.fixed_dictionaries(
    {},
    optional={
        name: st.just(PROPOSAL[name]) | json_values for name in ("description", "signature", "tests", "solution")
    },
)


@settings(max_examples=200)
@given(text=st.text() | st.text(alphabet='{}[]",:\\ \n`abe019.-'))
@example("{\x00")
def test_any_text_is_a_problem_or_a_rejection(text: str) -> None:
    outcome = collected(text)
    assert isinstance(outcome, Problem) or outcome.reason


@settings(max_examples=200)
@given(content=almost_proposals, cut=st.integers(0, 400), junk=st.text(max_size=5))
def test_any_broken_proposal_is_a_problem_or_a_rejection(content: dict[str, Any], cut: int, junk: str) -> None:
    text = json.dumps(content)
    outcome = collected(text[:cut] + junk + text[cut:])
    if isinstance(outcome, Problem):
        assert Problem.model_validate_json(outcome.model_dump_json()) == outcome
        assert outcome.provenance == MODEL
    else:
        assert outcome.reason


def test_a_problem_comes_back_from_the_form_in_which_it_is_shown() -> None:
    assert parse(problem_json(PROBLEM)) == PROBLEM


@pytest.mark.parametrize("part", ["train", "benchmark", "holdout"])
def test_every_bank_problem_comes_back_from_the_form_in_which_it_is_shown(part: str) -> None:
    for problem in read_problems(f"bank:{part}"):
        again = parse(problem_json(problem))
        assert (again.entry_point, again.cases, again.reference, again.signature) == (
            problem.entry_point,
            problem.cases[:5],
            problem.reference,
            problem.signature,
        )
        assert again.prompt.partition(" that ")[2] == problem.prompt.partition(" that ")[2] != ""


def test_cases_that_expect_exceptions_are_not_shown() -> None:
    cases = (*PROBLEM.cases, Case(input=["a", "b"], raises="TypeError"))
    assert parse(problem_json(PROBLEM.model_copy(update={"cases": cases}))) == PROBLEM


def test_a_problem_without_signature_and_the_usual_words_can_be_shown() -> None:
    plain = Problem(prompt="Add them.", entry_point="add", cases=PROBLEM.cases)
    again = parse(problem_json(plain))
    assert (again.entry_point, again.prompt) == ("add", "Write a Python function `add` that Add them.")
    assert (again.cases, again.reference) == (plain.cases, None)


def test_a_prompt_names_the_subject_and_asks_for_recursion_only_when_told_to() -> None:
    plain, recursive = (proposal_turns("graphs", [PROBLEM], use_recursion=flag) for flag in (False, True))
    assert "graphs given as adjacency dicts" in plain[-1]
    assert plain == [plain[-1], problem_json(PROBLEM), plain[-1]]
    assert "recursion" not in plain[-1]
    assert "recursion" in recursive[-1]


class Scripted:
    """A policy that gives the same answer to everything and keeps what it was asked."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.prompts: list[str] = []
        self.seeds: list[int] = []

    def prompt_tokens(self, *turns: str, opening: str) -> tuple[int, ...]:
        assert self._answer.startswith(opening)
        self.prompts.append(turns[-1])
        self._opening = opening
        return (len(self.prompts),)

    def sample(self, requests: Sequence[Request], *_: object) -> list[Completion]:
        self.seeds += [request.seed for request in requests]
        return [Completion(tokens=[0], logprobs=[0.0]) for _ in requests]

    def text(self, _: Sequence[int]) -> str:
        return self._answer.removeprefix(self._opening)


def test_domains_rotate_and_every_proposal_has_its_own_example_and_seed() -> None:
    policy: Any = Scripted(JSON)
    section = GenerateSection(domains=("graphs", "strings"))
    problems, rejections = invented(policy, 5, section, read_problems("bank:train"), seed=3)
    assert [problem.domain for problem in problems] == ["graphs", "strings", "graphs", "strings", "graphs"]
    assert rejections == []
    assert len(set(policy.seeds)) == 5
    subjects = [
        "adjacency dicts" if "about graphs given as adjacency dicts" in prompt else "strings"
        for prompt in policy.prompts
    ]
    assert subjects == ["adjacency dicts", "strings", "adjacency dicts", "strings", "adjacency dicts"]


def test_the_rotation_goes_on_in_the_next_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = GenerateSection()
    assert section.counts["model"] == 4 < len(section.domains)
    monkeypatch.setattr(model, "device_policy", lambda *_: nullcontext(Scripted(JSON)))
    domains: list[str] = []
    for iteration in (1, 2, 3):
        result = run(tmp_path / str(iteration), NOBODY, section, VerifySection(), 1, iteration)
        domains += [problem.domain for problem in read_jsonl(Path(result.files["problems"].path), Problem)]
    assert domains == [*section.domains, *section.domains]


def test_a_source_without_a_share_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROPOSERS:
        monkeypatch.setitem(PROPOSERS, name, lambda *_: pytest.fail("it was asked"))
    result = run(tmp_path, NOBODY, GenerateSection(sources={"bank": 1}), VerifySection(), 1, 1)
    assert result.figures == {"problems": 0, "rejections": 0, "asked": 0}


def test_every_source_of_the_config_is_there_and_the_bank_proposes_nothing() -> None:
    assert set(get_args(SourceName)) == {*PROPOSERS, "bank"}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("quick", {"model": 4, "procedural": 44, "bank": 16}),
        ("learn", {"procedural": 36, "bank": 12}),
        ("nightly", {"model": 16, "bank": 32}),
    ],
)
def test_the_configs_weights_are_numbers_of_problems(name: str, counts: dict[str, int]) -> None:
    """Measured runs rest on them."""
    assert load_config(Path(__file__).parents[2] / "configs" / f"{name}.yaml").generate.counts == counts


def test_weights_are_shares_of_the_problems_whatever_they_add_up_to() -> None:
    assert GenerateSection(problems=10, sources={"bank": 1, "model": 0.5, "procedural": 0.5}).counts == {
        "bank": 5,
        "model": 3,
        "procedural": 2,
    }


@pytest.mark.parametrize("former", ["from_model", "from_procedural"])
def test_who_has_the_former_settings_is_told_the_new_one(former: str) -> None:
    with pytest.raises(ConfigError, match=rf"generate\.{former}: unknown setting; did you mean sources\?"):
        parse_config({"generate": {former: 4}})


def test_procedural_proposals_need_no_model_and_are_others_in_the_next_iteration(tmp_path: Path) -> None:
    section = GenerateSection(problems=8, sources={"procedural": 1}, difficulty={1: 3.0, 2: 1.0})

    def made(iteration: int, place: str) -> list[Problem]:
        result = run(tmp_path / place, NOBODY, section, VerifySection(), 1, iteration)
        return list(read_jsonl(Path(result.files["problems"].path), Problem))

    first = made(1, "first")
    assert [problem.provenance.source for problem in first] == ["procedural"] * 8
    assert sorted(str(problem.difficulty) for problem in first) == ["1"] * 6 + ["2"] * 2
    assert made(1, "again") == first
    assert not {problem.prompt for problem in first} & {problem.prompt for problem in made(2, "second")}


def test_that_a_difficulty_is_used_up_is_said() -> None:
    weights = {1: 1.0, 2: 1.0}
    composed = [PROBLEM.model_copy(update={"difficulty": level}) for level in ("1", "1", "2")]
    [rejection] = used_up(composed, 4, weights)
    assert (rejection.stage, rejection.rule, rejection.value, rejection.limit) == ("generate", "used_up", 1, 2)
    assert rejection.reason.startswith("1 of 2 composed problems of difficulty 2:")
    assert used_up([*composed, composed[-1]], 4, weights) == []


def test_the_source_of_the_page_is_asked_by_its_weight_and_what_it_gives_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that docs/sources.md has as an example."""
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    [code] = [content for what, name, content in steps(page) if (what, name) == ("write", "tables.py")]
    tables = ModuleType("tables")
    exec(compile(code, "tables.py", "exec"), tables.__dict__)
    proposers: Any = PROPOSERS
    monkeypatch.setitem(proposers, "tables", tables.propose)
    section = GenerateSection().model_copy(update={"problems": 4, "sources": {"tables": 1.0, "bank": 1.0}})
    names: list[str] = []
    for iteration in (1, 2):
        result = run(tmp_path, NOBODY, section, VerifySection(), 1, iteration)
        proposals = list(read_jsonl(Path(result.files["problems"].path), Problem))
        names += [problem.entry_point for problem in proposals]
    assert names == ["times_2", "times_3", "times_4", "times_5"]
    with open_prover(VerifySection()) as prover:
        kept, refused = filter_proposals(proposals, [], 2, KnownProblems({}), FilterSection(), prover)
    assert (kept, refused) == (proposals, [])
