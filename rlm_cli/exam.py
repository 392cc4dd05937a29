"""`rlm exam`: any policy on any suite."""

import json
from pathlib import Path

from rlm_cli.terminal import plain_console, print_rows
from rlm_cli.watch import Watcher
from rlm_core import evaluate
from rlm_core.config import Config
from rlm_core.exams.order import Order, order_exam
from rlm_core.exams.scores import CONFIDENCE
from rlm_core.files import read_record, write_record
from rlm_core.phrases import number_of
from rlm_core.progress import listening, stopping_on_signals
from rlm_core.records import ExamReport

_console = plain_console()


def run_exam(
    config: Config,
    policy: str,
    suite: str,
    samples: int | None,
    temperature: float | None,
    max_tokens: int | None,
    seed: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Sit an exam with live progress and print its report; what is None is as the config says.

    Raises:
        RlmError: as `order_exam` and `evaluate.run` do.
    """
    with Watcher() as watcher, listening(watcher), stopping_on_signals():
        order = order_exam(config, policy, suite, samples, temperature, max_tokens, seed, say=watcher.say)
        path, reused = sit(order)
    report = read_record(path, ExamReport)
    if output is not None:
        path = write_record(output, report)
    if as_json:
        print(json.dumps({"report": str(path), "reused": reused} | report.model_dump(mode="json")))
    else:
        _print(report, path, reused)


def sit(order: Order) -> tuple[Path, bool]:
    """Have an exam sat: its report's path, and whether it was there before."""
    result = evaluate.run(order)
    return Path(result.files["report"].path), bool(result.figures["reused"])


def _print(report: ExamReport, path: Path, reused: bool) -> None:
    right = sum(problem.correct > 0 for problem in report.problems)
    rows = {
        "suite": f"{report.suite}, {number_of(len(report.problems), 'problem')}, {right} with a right answer",
        "policy": policy_of(report),
        "asked": f"{number_of(report.k, 'answer')} each, "
        f"temperature {report.temperature:g}, at most {report.max_tokens} tokens",
    }
    for k, share in report.pass_at.items():
        low, high = report.intervals[k]
        rows[f"pass@{k}"] = f"{share:.3f}  ({CONFIDENCE:.0%} interval {low:.3f} to {high:.3f})"
    if report.pass_at_own_k is not None:
        rows["its own k"] = f"{report.pass_at_own_k:.3f}"
    rows["answers"] = (
        f"{report.wrong_share:.1%} wrong, {report.unusable_share:.1%} could not be run, "
        f"{report.truncated_share:.1%} cut off"
    )
    speed = report.tokens / report.sampling_s if report.sampling_s else 0.0
    rows["time"] = f"{report.duration_s:.1f} s; {report.tokens} tokens at {speed:.0f} tokens/s"
    if reused:
        rows["reused"] = "sat before with the same settings and code"
    print_rows(_console, rows)
    _console.print(f"report: {path}", soft_wrap=True)  # in one piece, to be copied


def policy_of(report: ExamReport) -> str:
    """Who was examined, for people."""
    if report.base_model == "none":
        return f"{report.policy} (no model)"
    adapter = "without an adapter" if report.policy == "base" else f"with adapter {report.policy[:12]}"
    return f"{report.base_model} {adapter}"
