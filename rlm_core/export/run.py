"""Exporting a policy: fused, examined again, described, and in place as a whole or not at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm_core import evaluate
from rlm_core.config import Config
from rlm_core.errors import StageFailed, UsageError
from rlm_core.exams.exam import Exam
from rlm_core.exams.order import Order, order_exam
from rlm_core.exams.sit import require_complete, sit_exam
from rlm_core.export.agreement import greedy_logprobs, require_equal_logprobs, require_equal_scores
from rlm_core.export.card import Exported, model_card
from rlm_core.export.fused import write_fused
from rlm_core.export.gguf import check_gguf, write_gguf
from rlm_core.files import read_record, write_record, write_text
from rlm_core.model.adapters import read_adapter_config
from rlm_core.model.base_model import base_path, fingerprint
from rlm_core.model.device import device_policy, device_policy_to_train
from rlm_core.records import AdapterRef, ExamReport, PolicyRef
from rlm_core.rollout import sample_rollouts
from rlm_core.scratch import scratch_beside
from rlm_core.state.ledger import FinishedIteration, open_ledger
from rlm_core.state.project import Project
from rlm_core.state.run import Run

_GREEDY_PROBLEMS = 8
"""Whose greedy answers are scored by both."""

Say = Callable[[str], None]


def export(config: Config, policy: str, target: Path, gguf: bool, say: Say = lambda _: None) -> Exported:
    """Write a policy to `target` as a model of its own, with a card.

    Args:
        policy: `incumbent`, the number of an iteration or the directory of an adapter.
        gguf: write it as a GGUF file, too.
        say: called with a line about each step.

    Raises:
        UsageError: there is no such policy, it has no adapter, `target` is there already, or no GGUF can be made of it.
        StageFailed: the fused model does not agree with the policy, or it cannot be written.
    """
    target = target.absolute()
    if target.exists():
        raise UsageError(f"{target} is there already; choose another directory")
    order = order_exam(config, policy, config.evaluate.benchmark, say=say)
    who = order.examined
    if not isinstance(who, PolicyRef) or who.adapter is None:
        raise UsageError(f"{policy!r} has no adapter, so there is nothing to fuse into the base model")
    if gguf:
        check_gguf(who.base)
    say(f"examining the policy on {order.suite}")
    adapted = read_record(Path(evaluate.run(order).files["report"].path), ExamReport)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch_beside(target) as directory:
            built = directory / target.name
            exported = _build(built, target.name, order, who, who.adapter, config, adapted, gguf, say)
            built.rename(target)
    except OSError as error:
        raise StageFailed(f"cannot write {target}: {error.strerror or error}") from error
    return exported


def _build(
    built: Path,
    name: str,
    order: Order,
    who: PolicyRef,
    adapter: AdapterRef,
    config: Config,
    adapted: ExamReport,
    gguf: bool,
    say: Say,
) -> Exported:
    exam = order.exam()
    say("fusing, and comparing log-probabilities")
    difference = _fuse(built, who, exam)
    say("examining the fused model")
    sat = sit_exam(exam, PolicyRef(base=str(built), fingerprint=fingerprint(built)))
    require_complete(sat.report)
    fused = sat.report.model_copy(update={"base_model": name})
    file = f"{name}.gguf" if gguf else None
    exported = Exported(
        name=name,
        who=who,
        adapter=adapter,
        kind=read_adapter_config(adapter).get("fine_tune_type", "lora"),
        settings=_trained_with(adapter, config),
        history=_history(Project(Path(order.project)), adapter),
        exams=(adapted, fused),
        compared=require_equal_scores(adapted, fused),
        difference=difference,
        gguf=file,
    )
    if file:
        say("writing the GGUF file")
        write_gguf(built, built / file, who.base)
    write_record(built / "exams" / "adapter.json", adapted)
    write_record(built / "exams" / "fused.json", fused)
    write_text(built / "README.md", model_card(exported))
    return exported


def _fuse(built: Path, who: PolicyRef, exam: Exam) -> float:
    """Write the fused model; the mean difference of its log-probabilities of greedy answers to those of the policy."""
    problems = exam.suite.problems[:_GREEDY_PROBLEMS]
    greedy = exam.rollout.model_copy(
        update={"group_size": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "max_tokens": exam.evaluate.max_tokens}
    )
    with device_policy_to_train(who.base, who.adapter) as policy:
        answers = sample_rollouts(policy, problems, greedy, exam.seed, stage="evaluate", part="greedy")
        before = greedy_logprobs(policy, answers)
        dtype = policy.dtype
        write_fused(policy, base_path(who.base), built)
    with device_policy(str(built), None) as fused:
        return require_equal_logprobs(before, greedy_logprobs(fused, answers), dtype)


def _trained_with(adapter: AdapterRef, config: Config) -> dict[str, Any]:
    """What the run that made the adapter wrote down; where it came from elsewhere, the config of now."""
    path = Run(Path(adapter.path).parent).config
    try:
        written: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return config.dump()
    return written


def _history(project: Project, adapter: AdapterRef) -> list[FinishedIteration]:
    """The project's iterations up to the one that made the adapter; none when it did not make it."""
    if not project.ledger.is_file():
        return []
    with open_ledger(project.ledger) as ledger:
        history = ledger.history()
    made = [entry.number for entry in history if entry.decision.candidate == adapter]
    return [entry for entry in history if made and entry.number <= made[0]]
