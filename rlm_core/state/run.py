"""An iteration's directory: what its files are called, and how those are read that others ask for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlm_core.files import read_record, read_shards
from rlm_core.records import GateDecision, Rollout, Verdict

PART = ".part"
"""What the name of a file ends with that has a part of an exam."""
Made = Literal["proposals", "mutants", "problems"]
"""What generate, mutate and filter write."""


@dataclass(frozen=True)
class Run:
    """Where an iteration's files are. Which of them are there depends on how far it got and on what was pruned."""

    directory: Path

    @property
    def config(self) -> Path:
        return self.directory / "config.json"

    @property
    def results(self) -> Path:
        """The directory of the stages' results, which a run that goes on takes."""
        return self.directory / "results"

    @property
    def corpus(self) -> Path:
        return self.directory / "corpus.jsonl"

    def made(self, what: Made) -> Path:
        return self.directory / f"{what}.jsonl"

    def rejections(self, what: Made) -> Path:
        return self.directory / f"{what}.rejections.jsonl"

    @property
    def reserve(self) -> Path:
        return self.directory / "reserve.jsonl"

    @property
    def rollouts(self) -> Path:
        """A directory with a file for each shard, as is that of the verdicts."""
        return self.directory / "rollouts"

    @property
    def verdicts(self) -> Path:
        return self.directory / "verdicts"

    @property
    def rehearsal(self) -> Path:
        return self.directory / "rehearsal.jsonl"

    @property
    def metrics(self) -> Path:
        """One line for each optimizer step."""
        return self.directory / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint.safetensors"

    def remove_unfinished(self) -> None:
        """Remove what stages that were stopped on their way go on from: the iteration has ended."""
        for left in (self.checkpoint, *self.exam_parts()):
            left.unlink(missing_ok=True)

    def exam_parts(self) -> list[Path]:
        """Parts of exams whose report is not there yet."""
        return sorted(self.exams.glob(f"*{PART}"))

    @property
    def train_report(self) -> Path:
        return self.directory / "train.json"

    @property
    def adapter(self) -> Path:
        """The directory of the candidate."""
        return self.directory / "adapter"

    @property
    def exams(self) -> Path:
        """A directory with reports, and the answers and verdicts that they rest on."""
        return self.directory / "exams"

    @property
    def decision(self) -> Path:
        """A directory that has it belongs to an iteration that its gate decided."""
        return self.directory / "decision.json"

    @property
    def summary(self) -> Path:
        return self.directory / "summary.json"

    @property
    def problem_metrics(self) -> Path:
        return self.directory / "problem_metrics.jsonl"

    @property
    def gate_page(self) -> Path:
        return self.directory / "gate.md"

    def page(self, name: str) -> Path:
        """`iteration` and `learning`; see `pages.write_pages`."""
        return self.directory / f"{name}.md"

    def read_decision(self) -> GateDecision:
        """Raises StageFailed when the iteration was not decided, or the file is damaged."""
        return read_record(self.decision, GateDecision)

    def read_rollouts(self) -> list[Rollout]:
        """Of all shards; none where they were pruned. Raises StageFailed when a line is damaged."""
        return read_shards(self.rollouts, Rollout)

    def read_verdicts(self) -> list[Verdict]:
        """As `read_rollouts`."""
        return read_shards(self.verdicts, Verdict)
