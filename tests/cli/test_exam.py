"""`rlm exam` from end to end with the tiny model, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from rlm_core import evaluate
from rlm_core.config import Config
from rlm_core.config_file import load_config
from rlm_core.errors import ConfigError, LedgerError, ProblemError, UsageError
from rlm_core.exams.examinees import examinee_of
from rlm_core.exams.order import order_exam
from rlm_core.model.loading import load_policy
from rlm_core.records import AdapterRef, ExamReport, GateDecision, PolicyRef
from rlm_core.state.ledger import Base, open_ledger
from tests.command import Rlm, exam
from tests.conftest import MakeConfig
from tests.samples.adapters import LORA


def test_an_exam_is_sat_once_for_the_same_policy_suite_settings_and_code(
    rlm: Rlm,
    make_config: MakeConfig,
    suite: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_config()
    first = exam(rlm, config, "-p", "base", "-s", suite)
    assert (first["policy"], first["k"], first["max_tokens"], len(first["problems"])) == ("base", 3, 20, 16)
    assert 0.1 < first["pass_at"]["1"] < first["pass_at"]["3"]
    low, high = first["intervals"]["1"]
    assert low < first["pass_at"]["1"] < high
    again = exam(rlm, config, "-p", "base", "-s", suite)
    assert again == first | {"reused": True}
    assert not exam(rlm, config, "-p", "base", "-s", suite, "--seed", "5")["reused"]
    monkeypatch.setattr("rlm_core.exams.key.code_version", lambda: "newer")
    newer = exam(rlm, config, "-p", "base", "-s", suite)
    assert not newer["reused"]
    assert newer["pass_at"] == first["pass_at"]
    assert len(list((config.parent / "project" / "exams").glob("base-suite-jsonl-*.answers.jsonl"))) == 3
    shown = rlm("exam", "-c", str(config), "-p", "base", "-s", suite).out
    assert f"report: {newer['report']}\n" in shown
    assert "sat before with the same settings and code" in shown


def test_a_greedy_exam_takes_one_answer_of_each_problem(rlm: Rlm, make_config: MakeConfig, suite: str) -> None:
    report = exam(rlm, make_config(), "-p", "base", "-s", suite, "--temperature", "0")
    assert (report["k"], report["temperature"]) == (1, 0.0)
    assert set(report["pass_at"]) == {"1"}


def test_a_recited_exam_takes_one_answer_whatever_the_config_says() -> None:
    config = Config.parse({"evaluate": {"samples": 3}})
    assert order_exam(config, "empty", "bank:holdout").evaluate.samples == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samples": 0}, "the exam: evaluate.samples = 0: "),
        ({"temperature": 9.0}, "the exam: evaluate.temperature = 9.0: "),
        ({"suite": "none.yaml"}, "none.yaml: cannot be read: No such file"),
        ({"policy": "nobody"}, "there is no policy 'nobody'"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused_before_any_work(
    make_config: MakeConfig, changed: dict[str, Any], message: str
) -> None:
    config = load_config(make_config())
    with pytest.raises((ConfigError, ProblemError, UsageError)) as caught:
        order_exam(config, **{"policy": "base", "suite": "bank:holdout", **changed})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not Path(config.project).exists()


def decision(number: int, adapter: AdapterRef | None, accepted: bool) -> GateDecision:
    return GateDecision.model_validate(
        {
            "iteration": number,
            "outcome": "accepted" if accepted else "rejected",
            "rule": "paired",
            "reason": "because",
            "benchmark": {
                "suite": "s",
                "suite_digest": "d",
                "incumbent": 0.1,
                "candidate": 0.2,
                "difference": 0.1,
                "interval": (0.0, 0.2),
                "p_value": 0.04,
                "better": 1,
                "worse": 0,
            },
            "holdout": None,
            "candidate": adapter,
            "incumbent": None,
            "learner": None,
        }
    )


@pytest.fixture
def project(make_config: MakeConfig, tiny_model: Path, tmp_path: Path) -> tuple[Config, list[AdapterRef]]:
    """A project whose iterations made an adapter that was accepted, one that was rejected, and none."""
    config = load_config(make_config())
    made = []
    for seed in (1, 2):
        policy = load_policy(str(tiny_model))
        policy.add_adapter(LORA, seed)
        made.append(policy.save_adapter(tmp_path / f"adapter{seed}", {"iteration": seed}))
    with open_ledger(Path(config.project, "ledger.sqlite")) as ledger:
        ledger.begin(Base(name=str(tiny_model), fingerprint="f"), None)
        for number, adapter, accepted in ((1, made[0], True), (2, made[1], False), (3, None, False)):
            ledger.commit(decision(number, adapter, accepted), 0.3, [], {})
    return config, made


def test_policies_are_found_by_the_names_that_people_call_them(
    project: tuple[Config, list[AdapterRef]], tiny_model: Path
) -> None:
    config, (accepted, rejected) = project

    def adapter(name: str) -> AdapterRef | None:
        examinee = examinee_of(name, config)[1]
        assert isinstance(examinee, PolicyRef)
        assert examinee.base == str(tiny_model)
        return examinee.adapter

    assert adapter("base") is None
    assert adapter("incumbent") == adapter("1") == adapter(accepted.path) == accepted
    assert adapter("2") == rejected
    with pytest.raises(UsageError, match="iteration 3 made no adapter: because"):
        adapter("3")
    with pytest.raises(UsageError, match=r"no adapter of iteration 9 in .*; there are: 1, 2"):
        adapter("9")


def test_the_incumbent_of_a_project_that_was_not_begun_is_what_it_would_begin_with(
    project: tuple[Config, list[AdapterRef]], tmp_path: Path
) -> None:
    _, (first, _) = project
    other = project[0].model_copy(update={"project": str(tmp_path / "other")})
    begins_with = other.model_copy(update={"model": other.model.model_copy(update={"adapter": first.path})})
    for config, adapter in ((other, None), (begins_with, first)):
        examinee = examinee_of("incumbent", config)[1]
        assert isinstance(examinee, PolicyRef)
        assert examinee.adapter == adapter
    with pytest.raises(LedgerError, match="no iteration was run"):
        examinee_of("1", other)


def test_who_was_examined_is_in_the_report(project: tuple[Config, list[AdapterRef]], suite: str) -> None:
    config, (accepted, _) = project
    order = order_exam(config, "incumbent", suite, samples=1)
    result = evaluate.run(order)
    report = ExamReport.model_validate_json(Path(result.files["report"].path).read_bytes())
    assert report.policy == accepted.sha256
    assert report.tokens > 0
    assert report.sampling_s < report.duration_s
