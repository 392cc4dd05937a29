"""The scorer's process, and reasoning-gym's scorers in it: with a small package of its name, and with the real one."""

import importlib.util
import json
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.problems import JsonSchema, Problem, ReasoningGym
from rlm_core.sandbox import Limits
from rlm_core.verifiers import Answer, Bench, judge
from rlm_core.verifiers import scorer as scorers
from rlm_core.verifiers.scorer import Score, Scorer

LIMITS = Limits(case_s=0.5, memory_mb=128)
ANYTHING = JsonSchema(json_schema={})
INSTALLED = importlib.util.find_spec("reasoning_gym") is not None

FAKE = {
    "__init__.py": "from . import boxes\n",
    "utils.py": """
        import re
        def extract_answer(text):
            found = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
            return found[-1].strip() if found else None
    """,
    "dataset.py": """
        class ProceduralDataset:
            def __init__(self, config):
                self.config = config
            def score_answer(self, answer, entry):
                return 1.0 if answer == entry["answer"] else 0.5 if entry["answer"] in answer else 0.0
    """,
    "factory.py": "DATASETS = {}\n",
    "helpers.py": "def evaluated(text):\n    return eval(text)\n",
    "boxes.py": """
        from . import dataset, late, odd, sums
        from .factory import DATASETS
        DATASETS |= {"plain": (dataset.ProceduralDataset, dict), "odd": (odd.Odd, dict)}
        DATASETS |= {"sums": (sums.Sums, dict), "late": (late.Late, dict)}
    """,
    "odd.py": """
        import fractions
        from .dataset import ProceduralDataset
        class Odd(ProceduralDataset):
            def score_answer(self, answer, entry):
                if answer == entry["answer"]:
                    return 1.0
                odd = {"many": 1.5, "nan": float("nan"), "text": "x"}
                return odd[answer] if answer in odd else float(fractions.Fraction(answer) < 0)
    """,
    "sums.py": """
        from .dataset import ProceduralDataset
        class Sums(ProceduralDataset):
            def score_answer(self, answer, entry):
                return float(eval(answer) == 4)
    """,
    "late.py": """
        from .dataset import ProceduralDataset
        from .helpers import evaluated
        class Late(ProceduralDataset):
            def score_answer(self, answer, entry):
                return float(evaluated(answer) == 4)
    """,
}


@pytest.fixture
def scorer() -> Iterator[Scorer]:
    with Scorer(LIMITS) as started:
        yield started


@pytest.fixture(scope="module")
def small_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small package with the name of the real one."""
    directory = tmp_path_factory.mktemp("gym")
    (directory / "reasoning_gym").mkdir()
    for name, source in FAKE.items():
        (directory / "reasoning_gym" / name).write_text(textwrap.dedent(source))
    return directory


@pytest.fixture(scope="module")
def shared_scorer() -> Iterator[Scorer]:
    """Started by the first test that asks it, and again after one that it did not survive."""
    with Scorer(LIMITS) as shared:
        yield shared


@pytest.fixture
def gym(small_package: Path, shared_scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose scorer finds the small package instead of the real one."""
    monkeypatch.setenv("PYTHONPATH", str(small_package))
    return Bench(limits=LIMITS, scorer=shared_scorer)


def entry_problem(dataset: str, answer: Any = "4", pass_at: float = 1.0, **entry: Any) -> Problem:
    content = {"question": "2 + 2?", "answer": answer, "metadata": {}} | entry
    verifier = {"kind": "reasoning_gym", "dataset": dataset, "entry": content, "pass_at": pass_at}
    return Problem.model_validate({"prompt": "2 + 2?", "verifier": verifier})


@pytest.mark.parametrize(
    ("text", "pass_at", "score", "reason"),
    [
        (" 4\n", 1.0, 1.0, ""),
        ("5", 1.0, 0.0, "plain scores it 0.000, 1 is needed"),
        ("it is 4", 1.0, 0.5, "plain scores it 0.500, 1 is needed"),
        ("it is 4", 0.5, 1.0, ""),
        ("I think <answer>3</answer>, no <answer> 4 </answer>.", 1.0, 1.0, ""),
        ("", 1.0, 0.0, "plain scores it 0.000, 1 is needed"),
    ],
)
def test_a_data_set_scores_an_answer(gym: Bench, text: str, pass_at: float, score: float, reason: str) -> None:
    result = judge(Answer.of(text), entry_problem("plain", pass_at=pass_at), gym)
    assert (result.score, result.reason, result.status) == (score, reason, "failed" if reason else "passed")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("many", "its scorer gave 1.5"),
        ("nan", "its scorer gave nan"),
        ("text", "judging it raised ValueError"),
        ("no fraction", "judging it raised ValueError"),
        ("1e9999999", "it took too long to judge"),
        ("1" * 1_000_001, "the answer is longer than 1000000 characters"),
    ],
)
def test_whatever_a_scorer_does_with_an_answer_is_a_failure(gym: Bench, text: str, reason: str) -> None:
    result = judge(Answer.of(text), entry_problem("odd"), gym)
    assert (result.status, result.score) == ("failed", 0.0)
    assert result.reason.startswith(reason)
    assert judge(Answer.of("4"), entry_problem("odd"), gym).status == "passed"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (entry_problem("nothing"), "reasoning-gym has no data set 'nothing'"),
        (
            entry_problem("sums"),
            "the data set sums is refused: its scorer may run an answer as code (reasoning_gym.sums",
        ),
        (
            entry_problem("late"),
            "the data set late is refused: its scorer may run an answer as code (reasoning_gym.help",
        ),
        (entry_problem("odd", answer=4), ""),
        (entry_problem("odd", answer=["x"]), "its entry is not one of odd: scoring raised ValueError"),
        (entry_problem("plain", answer=4), "its entry is not one of plain: scoring raised TypeError"),
        (entry_problem("plain", answer=" 4"), "its entry's own answer does not pass: plain scores it 0.000"),
    ],
)
def test_what_is_wrong_with_an_entry_is_found_beforehand(gym: Bench, problem: Problem, reason: str) -> None:
    verifier: Any = problem.verifier
    if not reason:
        gym.scorer.prepare(verifier)
        return
    with pytest.raises(ProblemError) as caught:
        gym.scorer.prepare(verifier)
    assert str(caught.value).startswith(reason)


def test_an_entry_needs_its_three_parts(gym: Bench) -> None:
    with pytest.raises(ProblemError, match="its entry has no answer, metadata"):
        gym.scorer.prepare(ReasoningGym(dataset="plain", entry={"question": "?"}))


@pytest.mark.skipif(INSTALLED, reason="reasoning-gym is installed")
def test_without_the_package_one_is_told_what_to_install(scorer: Scorer) -> None:
    with pytest.raises(ProblemError, match=r"install it with: pip install 'rlm-flows\[reasoning-gym\]'"):
        scorer.prepare(ReasoningGym(dataset="basic_arithmetic", entry={}))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # its own
@pytest.mark.skipif(not INSTALLED, reason="reasoning-gym, an extra of some 300 MB, is not installed")
def test_the_real_package_scores_its_own_answers_or_is_refused() -> None:
    from reasoning_gym.factory import DATASETS, create_dataset

    page = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text()
    named = set(page.split("## reasoning-gym")[1].split("An entry's own answer, where")[1].split("##")[0].split("`"))
    refused, lost, right = set[str](), set[str](), set[str]()
    with Scorer(Limits(start_s=60)) as scorer:
        for name in DATASETS:
            try:
                entry = json.loads(json.dumps(create_dataset(name, size=1, seed=1)[0], default=str))
            except AssertionError:  # `composite` has nothing to compose
                entry = {"question": "", "answer": "", "metadata": {}}
            verifier = ReasoningGym(dataset=name, entry=entry)
            try:
                scorer.prepare(verifier)
                right.add(name)
            except ProblemError as error:
                (refused if "is refused" in str(error) else lost).add(name)
        assert scorer.score(ReasoningGym(dataset="coin_flip", entry=_coin_flip()), "1e9999999").score == 0
    assert {"simple_integration", "countdown", "n_queens"} <= refused <= named
    assert lost == {"arc_agi", "rearc"} <= named
    assert len(right) > 80


def _coin_flip() -> dict[str, Any]:
    from reasoning_gym.factory import create_dataset

    entry: dict[str, Any] = json.loads(json.dumps(create_dataset("coin_flip", size=1, seed=1)[0]))
    return entry


# --------------------------------------------------------------------------------------------------------- the process


def pid_of(scorer: Scorer) -> int:
    assert scorer._process is not None
    return scorer._process._process.pid


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_started_when_it_is_needed_and_ends_when_it_is_closed() -> None:
    with Scorer(LIMITS) as scorer:
        assert scorer._process is None
        scorer.score(ANYTHING, "1")
        pid = pid_of(scorer)
        assert alive(pid)
    assert not alive(pid)
    assert scorer.score(ANYTHING, "1").reason == ""  # a new one
    scorer.close()


def test_it_ends_when_nobody_holds_it_any_more() -> None:
    scorer = Scorer(LIMITS)
    scorer.score(ANYTHING, "1")
    pid = pid_of(scorer)
    del scorer
    assert not alive(pid)


def test_one_that_was_killed_is_replaced_and_the_text_scored(scorer: Scorer, caplog: pytest.LogCaptureFixture) -> None:
    scorer.score(ANYTHING, "1")
    os.kill(pid_of(scorer), signal.SIGKILL)
    assert scorer.score(ANYTHING, "1").score == 1.0
    assert [line.partition(": ")[0] for line in caplog.messages] == ["the scorer ended with -9"]


def test_one_that_does_not_answer_is_given_up_in_time(scorer: Scorer) -> None:
    scorer.score(ANYTHING, "1")
    os.kill(pid_of(scorer), signal.SIGSTOP)
    started = time.monotonic()
    assert scorer.score(ANYTHING, "1") == Score(reason="it took too long to judge", late=True)
    assert time.monotonic() - started < 10
    assert scorer.score(ANYTHING, "1").score == 1.0


def test_a_text_that_crashes_it_twice_is_worth_nothing(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scorers._Process.ask

    def crashing(self: Any, message: dict[str, Any], timeout_s: float) -> Any:
        if message.get("do") == "score":
            self._process.kill()
        return real(self, message, timeout_s)

    monkeypatch.setattr(scorers._Process, "ask", crashing)
    assert scorer.score(ANYTHING, "1").reason == "judging it crashed, twice"


def test_memory_is_limited() -> None:
    with Scorer(Limits(case_s=10, memory_mb=64)) as scorer:
        # 2 MB of text become more than 64 MB of lists.
        assert scorer.score(ANYTHING, "[" + "[[[[]]]]," * 220_000 + "1]").reason == "judging it needs too much memory"
        assert scorer.score(ANYTHING, "1").score == 1.0


def test_a_scorer_that_cannot_be_started_is_a_fault(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers, "_MODULE", "rlm_core.no_such_module")
    with pytest.raises(InfrastructureFault, match="the scorer does not start"):
        scorer.score(ANYTHING, "1")
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(InfrastructureFault, match="the scorer cannot be started: No such file"):
        scorer.score(ANYTHING, "1")
