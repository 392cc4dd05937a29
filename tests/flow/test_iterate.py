"""Whole iterations under a real Prefect server, with the tiny model."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlm_core.rollout
import tasks.gate
from flows.iterate import iterate
from rlm_cli.status import show_outcome
from rlm_core import progress
from rlm_core.errors import Busy, InfrastructureFault, Interrupted, ProblemError, UsageError
from rlm_core.model.adapters import read_adapter
from rlm_core.model.loading import load_policy
from rlm_core.model.tensors import read_tensors
from rlm_core.problems import Problem
from rlm_core.progress import Progress
from rlm_core.proposers import model
from rlm_core.records import GateDecision, Rejection, Rollout, Verdict
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.state.ledger import Ledger, open_ledger
from rlm_core.state.project import Project
from rlm_core.summary import Summary
from tests import tiny
from tests.conftest import MakeConfig
from tests.core.test_proposals import HOSTILE

FILES = {
    "config.json",
    "corpus.jsonl",
    "decision.json",
    "gate.md",
    "iteration.md",
    "learning.md",
    "metrics.jsonl",
    "mutants.jsonl",
    "mutants.rejections.jsonl",
    "problem_metrics.jsonl",
    "problems.jsonl",
    "problems.rejections.jsonl",
    "proposals.jsonl",
    "proposals.rejections.jsonl",
    "reserve.jsonl",
    "summary.json",
    "train.json",
}


def project_of(config: Path) -> Project:
    return Project(config.parent / "project")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def optimizer_steps(config: Path, iteration: int) -> int:
    """Steps that the optimizer of an iteration's candidate has taken, in this iteration and those before."""
    state = read_tensors(project_of(config).run(iteration) / "adapter" / "optimizer.safetensors")
    return int(np.array(state["step"]))


def stage_starts() -> tuple[list[str], Any]:
    """A list that fills with each stage's name as often as the stage begins work, and its listener."""
    seen: list[str] = []

    def listen(report: Progress) -> None:
        key = f"{report.stage}:{report.part}"
        if report.done and "found" not in report.figures and key not in seen:
            seen.append(key)

    return seen, progress.listening(listen)


def test_an_iteration_leaves_a_decision_that_its_directory_explains(make_config: MakeConfig) -> None:
    """Config, problems, metrics, adapter, decision, history."""
    config = make_config()
    result = iterate(str(config))
    project = project_of(config)
    run = project.run(1)
    assert {path.name for path in run.iterdir() if path.is_file()} == FILES
    assert {path.name for path in run.iterdir() if path.is_dir()} == {
        "adapter",
        "exams",
        "results",
        "rollouts",
        "verdicts",
    }

    decision = GateDecision.model_validate_json((run / "decision.json").read_text())
    assert result["decision"] == decision.model_dump(mode="json")
    assert decision.accepted
    assert decision.benchmark is not None
    assert decision.candidate is not None
    assert decision.benchmark.candidate > decision.benchmark.incumbent
    reports = {path.name.split("-")[0] for path in (run / "exams").glob("*.json")}
    assert reports == {"base", "incumbent", "candidate"}

    problems = [Problem.model_validate(row) for row in lines(run / "problems.jsonl")]
    rollouts = [Rollout.model_validate(row) for path in sorted((run / "rollouts").iterdir()) for row in lines(path)]
    verdicts = [Verdict.model_validate(row) for path in sorted((run / "verdicts").iterdir()) for row in lines(path)]
    assert [v.rollout_id for v in verdicts] == [r.id for r in rollouts]
    assert {r.problem_id for r in rollouts} == {p.id for p in problems}
    summary = Summary.model_validate_json((run / "summary.json").read_text())
    assert summary.rollouts == len(rollouts) == 36
    assert summary.passed == sum(v.passed for v in verdicts)
    assert summary.rollout_tokens == sum(len(r.tokens) for r in rollouts)
    assert list(summary.stage_seconds) == ["generate", "mutate", "filter", "rollout", "verify", "train", "evaluate"]
    assert all(seconds > 0 for seconds in summary.stage_seconds.values())
    assert summary.stage_seconds["train"] >= summary.train_s

    for path in (project.ledger, project.ledger_backup):
        with open_ledger(path, create=False) as ledger:
            assert ledger.incumbent() == decision.candidate
            assert ledger.next_iteration() == 2
    with open_ledger(project.ledger, create=False) as ledger:
        assert [entry.decision for entry in ledger.history()] == [decision]
        assert ledger.corpus_size() > 0


def test_an_iteration_whose_model_proposes_garbage_trains_on_good_problems_and_says_so(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(generate={"sources": {"model": 3, "procedural": 2, "bank": 1}}, mutate={"parents": 2})
    result = iterate(str(config))
    summary = Summary.model_validate(result["summary"])
    assert summary.rejections_by_rule["well_formed"] == 5
    assert summary.problems_by_source.keys() <= {"file", "procedural", "mutation"}
    assert sum(summary.problems_by_source.values()) == 6
    assert summary.trained_steps > 0
    run = project_of(config).run(1)
    made = [Problem.model_validate(row) for row in lines(run / "problems.jsonl")]
    assert [problem for problem in made if problem.provenance.written_by_model] == []
    page = (run / "iteration.md").read_text()
    assert "3 unusable" in page
    assert re.search(r"^On disk: \d+\.\d MB, the whole project \d+\.\d MB\.$", page, re.M)
    told = "none of 5 that the model was asked for could be used, others took their place"
    assert told in page
    capsys.readouterr()
    show_outcome({**result, "seconds": 1.0}, project_of(config))
    assert told in " ".join(capsys.readouterr().out.split())
    assert (summary.invented_asked, summary.invented) == (5, 0)
    refused = [row for path in sorted(run.glob("*.rejections.jsonl")) for row in lines(path)]
    assert all(row.keys() == Rejection.model_fields.keys() for row in refused)
    assert [row for row in refused if None in row.values() or not (row["rule"] and row["reason"])] == []
    counts = re.findall(r"^\| (?:generate|mutate|filter) \| \w+ \| (\d+) \|", page, re.M)
    assert sum(map(int, counts)) == len(refused) == sum(summary.rejections_by_rule.values())
    assert "| generate | well_formed | 3 |" in page
    assert "| mutate | well_formed | 2 |" in page


def test_whatever_a_model_calls_its_problems_nothing_is_written_elsewhere(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Proposals of hostile ids and descriptions that are good otherwise: they are asked, and name no file."""

    def proposal(number: int, hostile: str) -> str:
        tests = [{"input": [n], "expected": n * n + 7 * n + number} for n in range(6)]
        content = {
            "id": hostile,
            "description": f"multiplies n by n plus seven and adds {number} to it, see {hostile}",
            "signature": "f(n)",
            "solution": f"def f(n):\n    return n * n + 7 * n + {number}\n",
            "tests": tests,
        }
        return json.dumps(content)

    texts = [proposal(number, hostile) for number, hostile in enumerate(HOSTILE)]
    monkeypatch.setattr(model, "ask", lambda *_: texts)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    sources = {"model": len(HOSTILE), "bank": 5}  # the bank's ones are learnt from
    wanted = {"sources": sources, "problems": sum(sources.values())}
    config = make_config(generate=wanted, mutate={"parents": 0, "of_solutions": 0})
    before = set(tmp_path.iterdir())
    iterate(str(config))
    assert set(tmp_path.iterdir()) - before == {project_of(config).root}
    assert list(here.iterdir()) == []
    run = project_of(config).run(1)
    asked = [Problem.model_validate(row) for row in lines(run / "problems.jsonl")]
    assert sum(problem.provenance.written_by_model for problem in asked) == len(HOSTILE) - 1  # one is too long
    assert {path.name for path in run.iterdir() if path.is_file()} == FILES
    names = {part for path in project_of(config).root.rglob("*") for part in path.relative_to(tmp_path).parts}
    assert [name for name in names if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", name, re.ASCII)] == []
    assert "passwd" not in names


def test_useless_groups_are_replaced_up_to_the_budget_and_not_again_when_it_is_continued(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reserve's problems are answered, judged, trained on and counted like the iteration's own."""
    bank = tiny.write_problems(tmp_path / "many.jsonl", [tiny.problem(2, i) for i in range(12)])
    config = make_config(
        generate={"problems": 4, "sources": {"bank": 1}, "bank": bank},
        mutate={"parents": 0},
        rollout={"resample_budget": 1.0, "group_size": 2},
    )
    monkeypatch.setattr(rlm_core.verify, "useful_groups", lambda verdicts: len({v.problem_id for v in verdicts}) // 2)

    def stop_in_training(report: Progress) -> None:
        if report.stage == "train":
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop_in_training):
        iterate(str(config))
    run = project_of(config).run(1)
    # Half of each shard's groups count as useful, rounded down: 2 of 4, then 1 of 2 more, then none of single ones.
    asked = [len({row["problem_id"] for row in lines(path)}) for path in sorted((run / "rollouts").iterdir())]
    assert asked == [2, 2, 2, 1, 1]
    seen, listening = stage_starts()
    with listening:
        summary = iterate(str(config))["summary"]
    assert not [stage for stage in seen if stage.startswith(("rollout", "verify"))]
    assert (summary["groups"], summary["replacements"], summary["rollouts"]) == (8, 4, 16)
    assert len(lines(run / "problem_metrics.jsonl")) == 8
    with open_ledger(project_of(config).ledger, create=False) as ledger:
        assert len(ledger.tried_problems(before=9)) == 8


def test_the_next_iteration_starts_from_the_accepted_adapter(make_config: MakeConfig) -> None:
    """It rehearses the first one's answers, and its optimizer goes on from the first one's."""
    config = make_config(train={"rehearsal": {"share": 0.2}})
    first = iterate(str(config))["decision"]
    second = iterate(str(config))
    assert second["decision"]["iteration"] == 2
    assert second["summary"]["policy"] == first["candidate"]["sha256"]
    assert second["decision"]["incumbent"] == first["candidate"]
    trained = json.loads((project_of(config).run(2) / "adapter" / "adapter_config.json").read_text())
    assert trained["rlm"]["source_adapter"] == first["candidate"]["path"]
    assert second["summary"]["pass_rate"] > 0.5
    assert optimizer_steps(config, 2) == optimizer_steps(config, 1) + second["summary"]["trained_steps"]

    runs = [project_of(config).run(number) for number in (1, 2)]
    assert (runs[0] / "corpus.jsonl").read_text() == ""
    assert not (runs[0] / "rehearsal.jsonl").exists()
    old = [CorpusAnswer.model_validate(row) for row in lines(runs[1] / "rehearsal.jsonl")]
    passed = {
        v["rollout_id"] for path in (runs[0] / "verdicts").iterdir() for v in lines(path) if v["status"] == "passed"
    }
    assert {answer.rollout_id for answer in old} <= passed
    assert {answer.iteration for answer in old} == {1}
    assert len(old) == second["summary"]["rehearsed"] > 0
    assert sum(step["rehearsed"] for step in lines(runs[1] / "metrics.jsonl")) == len(old)


def test_after_a_rejection_training_starts_from_the_accepted_adapter_again(make_config: MakeConfig) -> None:
    """From its optimizer's state too, and not from that of the rejected one."""
    config = make_config()
    first = iterate(str(config))["decision"]
    assert first["outcome"] == "accepted"
    make_config(gate={"rule": "threshold", "threshold": 1.0}, train={"learning_rate": 1e-6})
    second = iterate(str(config))
    assert second["decision"]["outcome"] == "rejected"
    assert second["decision"]["holdout"] is None  # the benchmark had settled it
    assert len(list((project_of(config).run(2) / "exams").glob("candidate-*.json"))) == 1
    third = iterate(str(config))
    assert third["summary"]["policy"] == first["candidate"]["sha256"]
    assert third["decision"]["incumbent"] == first["candidate"]
    assert second["summary"]["trained_steps"] > 0
    assert optimizer_steps(config, 3) == optimizer_steps(config, 1) + third["summary"]["trained_steps"]


def test_on_probation_training_goes_on_from_the_candidate_and_exams_from_the_incumbent(
    make_config: MakeConfig,
) -> None:
    """From the candidate's optimizer state too; when it comes to nothing, from the incumbent again."""
    config = make_config(gate={"min_gain": 1.0, "worse_confidence": 0.999, "patience": 1, "holdout_margin": 1.0})
    first = iterate(str(config))
    assert first["decision"]["outcome"] == "probation"
    with open_ledger(project_of(config).ledger) as ledger:
        assert ledger.incumbent() is None
    second = iterate(str(config))
    assert second["decision"]["outcome"] == "rejected"
    assert second["summary"]["policy"] == first["decision"]["candidate"]["sha256"]
    assert second["decision"]["learner"] == first["decision"]["candidate"]
    assert second["decision"]["incumbent"] is None
    assert second["decision"]["benchmark"]["incumbent"] == first["decision"]["benchmark"]["incumbent"]
    assert optimizer_steps(config, 2) == optimizer_steps(config, 1) + second["summary"]["trained_steps"]
    third = iterate(str(config))
    assert third["summary"]["policy"] == "base"
    assert optimizer_steps(config, 3) == third["summary"]["trained_steps"]


def test_a_stopped_iteration_goes_on_where_it_was_and_ends_the_same(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config()

    def stop_in_training(report: Progress) -> None:
        if (report.stage, report.done) == ("train", 1):
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop_in_training):
        iterate(str(config))
    seen, listening = stage_starts()
    with listening:
        resumed = iterate(str(config))
    assert not [stage for stage in seen if stage.split(":")[0] in ("generate", "mutate", "rollout", "verify")]
    assert resumed["decision"]["iteration"] == 1

    project_of(config).root.rename(tmp_path / "first")
    straight = iterate(str(config))
    assert straight["decision"]["candidate"]["sha256"] == resumed["decision"]["candidate"]["sha256"]
    assert straight["decision"]["benchmark"] == resumed["decision"]["benchmark"]


def test_a_damaged_shard_is_made_again_and_no_other(make_config: MakeConfig) -> None:
    config = make_config()

    def stop_in_training(report: Progress) -> None:
        if report.stage == "train":
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop_in_training):
        iterate(str(config))
    shard = project_of(config).run(1) / "rollouts" / "001.jsonl"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    seen, listening = stage_starts()
    with listening:
        iterate(str(config))
    assert [stage for stage in seen if stage.startswith("rollout")] == ["rollout:001"]
    assert shard.read_bytes() == whole


def test_a_changed_setting_runs_the_stages_again_that_read_it(make_config: MakeConfig) -> None:
    config = make_config()

    def stop_in_exam(report: Progress) -> None:
        if report.stage == "evaluate":
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop_in_exam):
        iterate(str(config))
    make_config(train={"learning_rate": 4e-3})
    seen, listening = stage_starts()
    with listening:
        iterate(str(config))
    assert {stage.split(":")[0] for stage in seen} == {"train", "evaluate", "evaluate_verify"}


def test_an_edited_suite_is_sat_again(make_config: MakeConfig) -> None:
    config = make_config()

    def stop_in_second_suite(report: Progress) -> None:
        if report.stage == "evaluate" and "holdout.jsonl base " in report.part and report.done:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), progress.listening(stop_in_second_suite):
        iterate(str(config))
    benchmark = config.parent / "benchmark.jsonl"
    benchmark.write_text("".join(benchmark.read_text().splitlines(keepends=True)[:-1]))
    seen, listening = stage_starts()
    with listening:
        result = iterate(str(config))
    assert any(stage.startswith("evaluate:") and "benchmark.jsonl base " in stage for stage in seen)
    assert not [stage for stage in seen if stage.startswith(("rollout", "train"))]
    assert result["decision"]["benchmark"]["suite"] == str(benchmark)


def test_a_fault_of_the_machinery_is_tried_again(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config()
    sample, failures = rlm_core.rollout.sample_rollouts, list[int]()

    def fails_once(*args: Any, **kwargs: Any) -> list[Rollout]:
        if not failures:
            failures.append(1)
            raise InfrastructureFault("injected")
        return sample(*args, **kwargs)

    monkeypatch.setattr(rlm_core.rollout, "sample_rollouts", fails_once)
    assert iterate(str(config))["summary"]["rollouts"] == 36
    assert failures == [1]


def test_wrong_input_is_refused_before_any_work_and_not_tried_again(make_config: MakeConfig) -> None:
    config = make_config(evaluate={"holdout": "/no/such/suite.yaml"})
    seen, listening = stage_starts()
    with listening, pytest.raises(ProblemError, match=r"/no/such/suite\.yaml"):
        iterate(str(config))
    assert seen == []
    assert not project_of(config).ledger.exists()


def test_what_a_run_that_was_killed_after_its_commit_did_not_tell_the_next_one_tells(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, told = make_config(), []
    monkeypatch.setattr(tasks.gate, "tell", lambda _what, _project, payload: told.append(payload["iteration"]))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", killed_after(Ledger.commit))
        with pytest.raises(Killed):
            iterate(str(config))
    assert (told, (project_of(config).run(1) / "iteration.md").exists()) == ([], False)
    iterate(str(config))
    assert told == [1, 2]
    assert (project_of(config).run(1) / "iteration.md").exists()


class Killed(Exception):
    """In the place of a signal that a test would not survive."""


def killed_after(function: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        function(*arguments)
        raise Killed

    return call


def test_a_held_project_is_refused(make_config: MakeConfig) -> None:
    config = make_config()
    with project_of(config).held(), pytest.raises(Busy):
        iterate(str(config))


def test_a_project_keeps_to_its_base_model(make_config: MakeConfig, tiny_model: Path, tmp_path: Path) -> None:
    config = make_config()
    iterate(str(config))
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    altered = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**altered, "note": "another"}))
    make_config(model={"base": str(other)})
    with pytest.raises(UsageError, match="another project directory"):
        iterate(str(config))


def test_an_iteration_without_a_spread_of_rewards_is_decided_as_such(make_config: MakeConfig, tmp_path: Path) -> None:
    impossible = Problem.model_validate(
        {
            "prompt": "Write a Python function `g(n)` that cannot be known to this model.",
            "entry_point": "g",
            "cases": [{"input": [n], "expected": n * n} for n in range(1, 7)],
            "reference": "def g(n):\n    return n * n\n",
        }
    )
    bank = tmp_path / "impossible.jsonl"
    bank.write_text(impossible.model_dump_json() + "\n")
    config = make_config(generate={"bank": str(bank), "problems": 1})
    result = iterate(str(config))
    assert result["decision"]["outcome"] == "rejected"
    assert "nothing to learn" in result["decision"]["reason"]


def test_the_accepted_adapter_is_a_policy_of_its_own(make_config: MakeConfig, tiny_model: Path) -> None:
    config = make_config()
    decision = iterate(str(config))["decision"]
    adapter = read_adapter(decision["candidate"]["path"])
    assert adapter.sha256 == decision["candidate"]["sha256"]
    assert load_policy(str(tiny_model), adapter).name == adapter.sha256


def test_problems_that_ask_for_no_code_are_trained_on_and_examined_like_others(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    def say_two(variant: int) -> Problem:
        """Solved by the tiny model's answers that solve `tiny.problem(2)`, judged as text."""
        wanted = {"kind": "numeric", "expected": 2} if variant % 2 else {"kind": "regex", "pattern": r"n \+ 2\s*$"}
        return Problem.model_validate({"prompt": tiny.problem(2, variant).prompt, "verifier": wanted})

    bank = [tiny.problem(2, i) if i % 2 else say_two(i) for i in range(60, 66)]
    suites = {
        name: tiny.write_problems(tmp_path / f"{name}-texts.jsonl", [say_two(first + i) for i in range(10)])
        for name, first in (("benchmark", 20), ("holdout", 40))
    }
    mixed = tiny.write_problems(tmp_path / "mixed.jsonl", bank)
    config = make_config(generate={"bank": mixed}, rollout={"prompt_suffix": ""}, evaluate=suites)
    decision = iterate(str(config))["decision"]
    assert decision["outcome"] == "accepted"
    run = project_of(config).run(1)
    by_id = {problem.id: problem for problem in bank}
    verdicts = [Verdict.model_validate(row) for path in (run / "verdicts").iterdir() for row in lines(path)]
    assert {verdict.problem_id for verdict in verdicts} == set(by_id)
    for verdict in verdicts:
        assert (verdict.sandbox == "none") != by_id[verdict.problem_id].asks_for_code
        assert verdict.reward == float(verdict.passed)
