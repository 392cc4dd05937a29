"""A model card: what an exported model is, where it comes from, how it did, and under which licences it stands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlm_core.config import DEFAULT_MODEL
from rlm_core.model.default_model import HUB_ID, LICENCE, NOTICE
from rlm_core.pages.markdown import fenced, table
from rlm_core.records import AdapterRef, ExamReport, PolicyRef, SuiteComparison
from rlm_core.state.ledger import FinishedIteration


@dataclass(frozen=True)
class Exported:
    """What a card tells about."""

    name: str
    who: PolicyRef
    adapter: AdapterRef
    kind: str
    """Of the adapter."""
    settings: dict[str, Any]
    """The config that the adapter was trained with."""
    history: list[FinishedIteration]
    """Of the project up to the iteration that made the adapter, oldest first."""
    exams: tuple[ExamReport, ExamReport]
    """The policy's and the fused model's report on the same exam."""
    compared: SuiteComparison
    difference: float
    """Mean difference of log-probabilities, in nats."""
    gguf: str | None


def model_card(exported: Exported) -> str:
    """The card as Markdown with the metadata that model hubs read."""
    parts = [
        _metadata(exported),
        f"# {exported.name}\n\n{_what(exported)}",
        _lineage(exported),
        _exams(exported),
        "## Settings\n\n" + fenced(yaml.safe_dump(exported.settings, sort_keys=False, allow_unicode=True)),
        _licences(exported),
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(exported: Exported) -> str:
    base = exported.who.base
    content: dict[str, object] = {
        "library_name": "mlx",
        "pipeline_tag": "text-generation",
        "tags": ["mlx", "rlm-flows"],
    }
    if base == DEFAULT_MODEL:
        content |= {"base_model": HUB_ID, "license": LICENCE.lower()}
    elif not Path(base).expanduser().is_dir():
        content["base_model"] = base
    return f"---\n{yaml.safe_dump(content)}---"


def _what(exported: Exported) -> str:
    gguf = f" `{exported.gguf}` is the same for llama.cpp." if exported.gguf else ""
    return (
        f"`{exported.who.base}`, trained by reinforcement learning on problems that it was set and set itself, with "
        f"rlm-flows. The adapter is fused into the weights.{gguf}\n\n"
        f'    mlx_lm.generate --model {exported.name} --prompt "Write a Python function add(a, b)."'
    )


def _lineage(exported: Exported) -> str:
    lines = [
        f"- base: `{exported.who.base}`, fingerprint {exported.who.fingerprint}",
        f"- adapter: {exported.kind}, SHA-256 {exported.adapter.sha256}",
    ]
    rows = [
        (
            str(entry.number),
            entry.decision.outcome,
            f"{entry.decision.benchmark.candidate:.3f}" if entry.decision.benchmark else "",
            f"{entry.decision.holdout.candidate:.3f}" if entry.decision.holdout else "",
        )
        for entry in exported.history
    ]
    text = "\n".join(["## Lineage", "", *lines])
    return f"{text}\n\n{table(('Iteration', 'Outcome', 'Benchmark', 'Holdout'), rows)}" if rows else text


def _exams(exported: Exported) -> str:
    adapted, fused = exported.exams
    rows = [
        (name, *(f"{report.pass_at[k]:.3f}" for k in report.pass_at), f"{report.truncated_share:.1%}")
        for name, report in (("with the adapter", adapted), ("fused, as it is here", fused))
    ]
    head = ("Policy", *(f"pass@{k}" for k in adapted.pass_at), "cut off")
    about = (
        f"`{adapted.suite}`: {len(adapted.problems)} problems, {adapted.k} answers each, temperature "
        f"{adapted.temperature:g}, at most {adapted.max_tokens} tokens, the same seeds for both."
    )
    same = (
        f"The fused model was examined again: {exported.compared.better} problems better, {exported.compared.worse} "
        f"worse. Log-probabilities of greedy answers differ by {exported.difference:.1e} nats on average."
    )
    return f"## Exams\n\n{about}\n\n{table(head, rows)}\n\n{same}"


def _licences(exported: Exported) -> str:
    if exported.who.base == DEFAULT_MODEL:
        return f"## Licences\n\n{NOTICE}"
    return f"## Licences\n\nThat of the base model, `{exported.who.base}`, holds for this one; look there."
