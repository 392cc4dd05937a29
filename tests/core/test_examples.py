"""What the model is shown when it is asked for a problem: solved problems of the domain, or the bank's without them."""

import json
from pathlib import Path

import pytest

from rlm_core import generate
from rlm_core.config import GenerateSection, SourceName, VerifySection
from rlm_core.examples import examples_for, problem_json, solved_problems
from rlm_core.files import write_jsonl
from rlm_core.problems import Problem, Regex
from rlm_core.proposers import model
from rlm_core.records import FileRef, PolicyRef
from rlm_core.sources import read_problems
from rlm_core.state.corpus import CorpusAnswer
from tests import tiny

BANK = read_problems("bank:train")


def solved(count: int, domain: str = "maths") -> list[Problem]:
    """Problems of names of their own, the most useful first."""
    return [tiny.problem(2, i).model_copy(update={"entry_point": f"f{i}", "domain": domain}) for i in range(count)]


def answer(problem: Problem, text: str = "```python\ndef f(n):\n    return n + 2\n```") -> CorpusAnswer:
    return CorpusAnswer(problem=problem, rollout_id="r", iteration=1, text=text, pass_rate=0.5, usefulness=0.2)


def names(problems: list[Problem]) -> list[str]:
    return [problem.entry_point for problem in problems]


def test_solved_problems_are_nearest_to_the_request_and_the_bank_gives_the_others() -> None:
    shown = examples_for("maths", BANK, solved(8), 2, seed=1)
    assert [problem in BANK for problem in shown] == [True, False, False]
    assert len(set(names(shown))) == 3
    assert {problem.domain for problem in shown} == {"maths"}


@pytest.mark.parametrize(("of_corpus", "count", "expected"), [(0, 2, 0), (1, 2, 1), (8, 0, 0), (8, 3, 3)])
def test_what_the_corpus_cannot_give_the_bank_does(of_corpus: int, count: int, expected: int) -> None:
    shown = examples_for("graphs", BANK, solved(of_corpus, "graphs"), count, seed=1)
    assert len(shown) == 3
    assert sum(problem not in BANK for problem in shown) == expected


def test_with_an_empty_corpus_the_examples_are_those_without_one() -> None:
    assert examples_for("dp", BANK, [], 2, seed=5) == examples_for("dp", BANK, solved(4), 0, seed=5)


def test_a_domain_that_the_corpus_does_not_have_is_shown_others_of_it() -> None:
    assert sum(problem not in BANK for problem in examples_for("graphs", BANK, solved(4), 2, seed=1)) == 2


def test_they_are_drawn_from_the_more_useful_half_by_the_requests_seed() -> None:
    corpus = solved(10)
    draws = [names(examples_for("maths", BANK, corpus, 2, seed))[1:] for seed in range(60)]
    assert draws == [names(examples_for("maths", BANK, corpus, 2, seed))[1:] for seed in range(60)]
    assert {name for draw in draws for name in draw} == {"f0", "f1", "f2", "f3", "f4"}


def test_a_problem_of_the_bank_that_was_solved_is_shown_once() -> None:
    for seed in range(20):
        shown = examples_for("dp", BANK, [problem for problem in BANK if problem.domain == "dp"], 2, seed)
        assert len({problem.id for problem in shown}) == 3


def test_the_answer_that_passed_stands_for_a_missing_solution() -> None:
    own = tiny.problem(2)
    bare = own.model_copy(update={"reference": None})
    [first, second] = solved_problems([answer(own), answer(bare)])
    assert first.reference == own.reference
    assert second.reference == "def f(n):\n    return n + 2\n"


@pytest.mark.parametrize(
    ("prompt", "description"),
    [
        ("Write a Python function `f(n)` that adds 2 to what that is.", "adds 2 to what that is."),
        ("Return the number that is larger by two.", "Return the number that is larger by two."),
    ],
)
def test_only_the_opening_that_every_request_has_is_left_out_of_an_example(prompt: str, description: str) -> None:
    problem = tiny.problem(2).model_copy(update={"prompt": prompt})
    assert json.loads(problem_json(problem))["description"] == description


def test_what_cannot_be_an_example_is_left_out() -> None:
    asks_for_text = Problem(prompt="Say yes.", verifier=Regex(pattern="yes"))
    long = tiny.problem(2).model_copy(update={"prompt": "Write a Python function `f(n)` that " + "adds " * 500})
    bare = tiny.problem(2).model_copy(update={"reference": None})
    assert solved_problems([answer(asks_for_text), answer(long), answer(bare, "I do not know.")]) == []


@pytest.mark.parametrize(
    ("source", "solved_examples", "shows"), [("model", 2, True), ("bank", 2, False), ("model", 0, False)]
)
def test_the_corpus_is_read_only_where_it_is_shown(source: SourceName, solved_examples: int, shows: bool) -> None:
    assert GenerateSection(sources={source: 1}, solved_examples=solved_examples).shows_corpus == shows


def test_the_generate_stage_shows_the_corpus_to_the_model(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    def ask(_policy: object, conversations: list[list[str]], *_: object) -> list[str]:
        turns.extend(turn for conversation in conversations for turn in conversation)
        return ["nothing"] * len(conversations)

    monkeypatch.setattr(model, "ask", ask)
    corpus = FileRef.of(write_jsonl(tmp_path / "corpus.jsonl", [answer(problem) for problem in solved(6, "strings")]))
    section = GenerateSection(problems=4, sources={"model": 1}, domains=("strings", "dp"))
    learner = PolicyRef(base=str(tiny_model), fingerprint="f")
    for given in (None, corpus):
        turns.clear()
        generate.run(tmp_path, learner, section, VerifySection(), 1, 2, given)
        shown = [json.loads(turn)["id"] for turn in turns if turn.startswith("{")]
        assert len(shown) == 12
        assert sum(name in {"f0", "f1", "f2"} for name in shown) == (8 if given else 0)
