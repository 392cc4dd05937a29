"""What `rlm run` prints at the end of an iteration, `rlm status`, and `rlm history`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from rlm_cli.terminal import plain_console, print_rows
from rlm_core.inventions import in_words
from rlm_core.phrases import COLUMNS, counted, groups_in_words, megabytes, minute, number_of, p_text, scores
from rlm_core.records import AdapterRef, GateDecision, SuiteComparison
from rlm_core.state.ledger import Ledger
from rlm_core.state.project import Project
from rlm_core.state.prune import size_of
from rlm_core.state.run import Run
from rlm_core.summary import Summary

_console = plain_console()
_WITH_REASONS = 110
"""So many columns a terminal needs for a table with a sentence in its last one."""


def show_outcome(result: Mapping[str, Any], project: Project) -> None:
    """The summary at the end of an iteration."""
    summary = Summary.model_validate(result["summary"])
    decision = GateDecision.model_validate(result["decision"])
    kept, refused = summary.problems_by_source, summary.rejections_by_rule
    rows: dict[str, str | Text] = {
        "problems": "; ".join(filter(None, [f"{counted(kept)} kept, {counted(refused)} rejected", in_words(summary)])),
        "rollouts": (
            f"{summary.rollouts}, {summary.passed} passed ({summary.pass_rate:.1%}), "
            f"mean reward {summary.reward_mean:.3f}, "
            f"{summary.rollout_tokens} tokens at {summary.rollout_tokens_per_s:.0f} tokens/s, "
            f"{summary.truncated_share:.0%} cut off"
        ),
        "verified": (
            f"in {summary.sandbox}, {summary.verify_latency.p50 * 1e3:.0f} ms each (median), "
            f"{summary.infrastructure_faults} faults"
        ),
        "trained": (
            f"{number_of(summary.trained_steps, 'step')} on {summary.trained_tokens} tokens "
            f"from {groups_in_words(summary)} "
            + (f"and on {summary.rehearsed} earlier answers " if summary.rehearsed else "")
            + f"in {summary.train_s:.0f} s"
        ),
    }
    for name, comparison in (("benchmark", decision.benchmark), ("holdout", decision.holdout)):
        if comparison is not None:
            rows[name] = _compared(comparison)
    rows["gate"] = Text.assemble((decision.outcome, "bold"), f" ({decision.rule}): {decision.reason}")
    run = Run(project.run(summary.iteration))
    size = megabytes(size_of(run.directory))
    rows["files"] = f"{_shown(run.directory)}, {size}; {run.gate_page.name} there explains the decision"
    rows["time"] = f"{result['seconds'] / 60:.1f} minutes: {_shares(summary.stage_seconds)}"
    number = (f"iteration {summary.iteration}", "bold")
    _console.print(Text.assemble("\n", number, f", answered by {_policy(summary.policy)}"))
    print_rows(_console, rows)


def _shares(stage_seconds: Mapping[str, float]) -> str:
    """Each stage's share of all stages' time, those below one percent left out."""
    total = sum(stage_seconds.values()) or 1
    return ", ".join(f"{stage} {s / total:.0%}" for stage, s in stage_seconds.items() if s >= 0.005 * total)


def show_status(project: Project, ledger: Ledger) -> None:
    """Where a project stands."""
    past, incumbent, base = ledger.past_scores(), ledger.incumbent(), ledger.base()
    history = ledger.history()
    print_rows(
        _console,
        {
            "project": str(project.root),
            "base model": base.name if base else "none yet",
            "incumbent": _adapter(incumbent),
            **_pointers(ledger),
            "iterations": f"{len(history)} finished, {sum(i.decision.accepted for i in history)} accepted",
            **({"the last": _decided(history[-1].decision)} if history else {}),
            "best score": "none accepted yet" if past.best is None else f"{past.best:.3f} on the benchmark",
            "corpus": f"{ledger.corpus_size()} passed answers",
            "disk": megabytes(size_of(project.root)),
            "next": _next(project, ledger.next_iteration()),
        },
    )


def _next(project: Project, number: int) -> str:
    holder = project.holder()
    if holder is not None:
        return f"iteration {number}; the project is in use by {holder}"
    word = "continued" if Run(project.run(number)).config.exists() else "begun"
    return f"iteration {number}, {word} by `rlm run`; `rlm history` has those before"


def _decided(decision: GateDecision) -> str:
    return f"iteration {decision.iteration}, {decision.outcome}: {decision.reason}"


def _pointers(ledger: Ledger) -> dict[str, str]:
    """What is trained and what is served, where that is not the incumbent; the last rollback."""
    rows, lineage = {}, ledger.lineage()
    if lineage.waited:
        rows["on probation"] = f"{_adapter(lineage.learner)}, for {number_of(lineage.waited, 'iteration')}"
    served = ledger.pointer("inference")
    if served and served.adapter != lineage.incumbent:
        rows["served"] = _adapter(served.adapter)
    accepted = ledger.pointer("accepted")
    if accepted and accepted.cause == "rollback":
        rows["rolled back"] = f"after iteration {accepted.iteration}, at {accepted.time}"
    return rows


def show_history(ledger: Ledger, as_json: bool) -> None:
    """The finished iterations, as a table or as JSON Lines."""
    if as_json:
        for iteration in ledger.history():
            print(json.dumps(iteration.model_dump(mode="json")))
        return
    console = plain_console()
    head = ["", "ended", "passed", "benchmark", "holdout", "decision", "reason"]
    caption = COLUMNS
    if console.width < _WITH_REASONS:
        head.remove("reason")
        caption += "; `rlm show N` says why"
    table = Table(*head, caption=caption)
    rollbacks = [move for move in ledger.moves() if move.name == "accepted" and move.cause == "rollback"]
    for iteration in ledger.history():
        decision = iteration.decision
        cells = [
            str(iteration.number),
            minute(iteration.ended),
            f"{iteration.summary['pass_rate']:.1%}",
            scores(decision.benchmark),
            scores(decision.holdout),
            decision.outcome,
            decision.reason,
        ]
        table.add_row(*cells[: len(head)])
        for move in rollbacks:
            if move.iteration == iteration.number:
                cells = ["", minute(move.time), "", "", "", "rollback", f"to {_adapter(move.adapter)}"]
                table.add_row(*cells[: len(head)])
    console.print(table)


def _compared(comparison: SuiteComparison) -> str:
    low, high = comparison.interval
    return (
        f"{comparison.incumbent:.3f} incumbent → {comparison.candidate:.3f} candidate "
        f"({comparison.difference:+.3f}, interval {low:+.3f} to {high:+.3f}, p {p_text(comparison.p_value, '= ')}; "
        f"better on {number_of(comparison.better, 'problem')}, worse on {comparison.worse})"
    )


def _adapter(adapter: AdapterRef | None) -> str:
    return f"{adapter.path} ({adapter.sha256[:12]})" if adapter else "the base model itself"


def _policy(name: str) -> str:
    return "the base model" if name == "base" else f"adapter {name[:12]}"


def _shown(path: Path) -> Path:
    """Relative to where the person is, when that is shorter."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
