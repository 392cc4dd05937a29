"""What the stages hand to each other: frozen records, JSON on disk.

Ids are content hashes that we compute. Nothing that a model wrote becomes a file name, a path or a cache key by itself.
Axes: P problems, G rollouts per problem, T tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rlm_core.files import digest, sha256_of

Share = Annotated[float, Field(ge=0, le=1)]
"""A proportion, 0 to 1."""


class Record(BaseModel):
    """Base of all records: immutable, and a misspelt field fails where it is made."""

    # Not-a-number and the infinities as text: JSON has no numbers for them, and null would not be read back.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class FileRef(Record):
    """A file named by a stage's result, with the digest that shows whether it is still the same file."""

    path: str
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileRef":
        """The reference to a file as it is now."""
        return cls(path=str(path), sha256=sha256_of(path))

    def damage(self) -> str | None:
        """What happened to the file since, or None when it is there and unchanged."""
        try:
            return None if sha256_of(Path(self.path)) == self.sha256 else f"{self.path} was altered"
        except OSError as error:
            return f"{self.path} cannot be read: {error.strerror}"


class StageResult(Record):
    """What a stage hands on: small, JSON, naming files instead of holding data."""

    files: dict[str, FileRef] = {}
    figures: dict[str, JsonValue] = {}
    seconds: float = 0.0
    """How long the stage or shard took, when it was not taken from an earlier run."""

    def damage(self) -> str | None:
        """What happened to a file since, so that the stage has to run again; None when all are as they were."""
        return next(filter(None, (file.damage() for file in self.files.values())), None)

    def within(self, directory: Path) -> "StageResult":
        """With paths from `directory` on, as it is stored: the directory may be moved."""
        return self._with_paths(lambda path: path.relative_to(directory) if path.is_relative_to(directory) else path)

    def at(self, directory: Path) -> "StageResult":
        """With whole paths, of a result that was stored by `within`."""
        return self._with_paths(lambda path: directory / path)

    def _with_paths(self, change: Callable[[Path], Path]) -> "StageResult":
        files = {name: FileRef(path=str(change(Path(f.path))), sha256=f.sha256) for name, f in self.files.items()}
        return self.model_copy(update={"files": files})


class IterationResults(Record):
    """What the stages of an iteration came to, up to its gate."""

    generated: StageResult
    mutated: StageResult
    filtered: StageResult
    """With the iteration's problems."""
    rollouts: tuple[StageResult, ...]
    """Of each shard, as are those of the verdicts."""
    verdicts: tuple[StageResult, ...]
    trained: StageResult
    exams: tuple[StageResult, ...]
    """Empty when there is no candidate."""

    @property
    def made(self) -> tuple[StageResult, ...]:
        """Of the stages that make problems."""
        return (self.generated, self.mutated, self.filtered)

    def stage_seconds(self) -> dict[str, float]:
        """How long each stage took, all its shards or exams together."""
        stages = {
            "generate": (self.generated,),
            "mutate": (self.mutated,),
            "filter": (self.filtered,),
            "rollout": self.rollouts,
            "verify": self.verdicts,
            "train": (self.trained,),
            "evaluate": self.exams,
        }
        return {stage: sum(result.seconds for result in results) for stage, results in stages.items()}


class Refusal(Record):
    """Why a proposal does not become a problem."""

    rule: str
    reason: str
    """For people."""
    value: float | str | None
    """What was found; what has no measure is named. Null only in files of earlier versions."""
    limit: float | str | None
    """The limit that it is beyond; `none` where there must be nothing of the kind."""

    @classmethod
    def of_error(cls, rule: str, error: Exception) -> "Refusal":
        """That an error shows the rule broken."""
        return cls(rule=rule, reason=str(error), value=type(error).__name__, limit="none")


class Rejection(Refusal):
    """A proposal that did not become a problem, and why."""

    stage: Literal["generate", "mutate", "filter"]
    proposal: str
    """The proposal's text or JSON, cut to a readable length."""


# ---------------------------------------------------------------------------------------------- rollouts and verdicts


class Rollout(Record):
    """One sampled answer. Tokens in, tokens out: what is trained is exactly these ids."""

    problem_id: str
    index: int
    """Position within the problem's group, 0 ≤ index < G."""
    seed: int
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    """Sampled token ids, the stop token included when there was one."""
    logprobs: tuple[float, ...]
    """Log-probability of each sampled token at the sampling temperature, before top-p and top-k."""
    text: str
    finish_reason: Literal["stop", "code", "length"]
    """An end token; a whole block of code, after which nothing counts; or the limit on tokens, which cut it off."""

    @property
    def truncated(self) -> bool:
        """Whether the limit on tokens cut it off."""
        return self.finish_reason == "length"

    @property
    def id(self) -> str:
        return digest(self.problem_id, self.index, self.seed, self.tokens)


class CaseResult(Record):
    """What one part of a verifier came to: a case, a test, or a verifier that it is composed of."""

    name: str = ""
    """Of a test or a verifier; cases have none."""
    outcome: Literal["passed", "failed", "raised", "timeout", "crashed", "garbage", "not_run"]
    detail: str = ""
    """What came instead of what was expected, cut to a readable length."""
    latency_ms: float = 0.0
    """Time on the clock from request to answer."""


class Usage(Record):
    """What running an answer took, all its processes together."""

    cpu_s: float = 0.0
    memory_mb: float = 0.0
    """Largest resident size, the interpreter included."""
    ran_out_of_clock: bool = False
    """Whether it ran into a limit on the wall clock with CPU time left: it slept, or the machine was busy."""
    blocked: tuple[str, ...] = ()
    """What its Python code tried to do that no answer may, such as `socket.connect`; see docs/sandbox.md."""

    @classmethod
    def total(cls, parts: Sequence["Usage"]) -> "Usage":
        """What several runs took together."""
        return cls(
            cpu_s=sum(part.cpu_s for part in parts),
            memory_mb=max((part.memory_mb for part in parts), default=0.0),
            ran_out_of_clock=any(part.ran_out_of_clock for part in parts),
            blocked=tuple(dict.fromkeys(what for part in parts for what in part.blocked)),
        )


class Verdict(Record):
    """What checking found about one answer."""

    rollout_id: str
    problem_id: str
    status: Literal["passed", "failed", "infrastructure"]
    """`infrastructure`: the machinery failed; such a rollout is neither right nor wrong and is not trained on."""
    reason: str = ""
    """Why the answer as a whole failed: no code, does not load, no such function, wrong answers …"""
    cases: tuple[CaseResult, ...] = ()
    sandbox: str
    """Name of the sandbox that ran the code, or `none` when no code was run."""
    latency_s: float = 0.0
    usage: Usage = Usage()
    score: Share = 0.0
    """1 when it passed; else how much was right: the share of passed cases, or what the verifier gives."""
    reward: float = 0.0

    @property
    def judged(self) -> bool:
        """Whether it says anything about the answer: the machinery did not fail."""
        return self.status != "infrastructure"

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def unusable(self) -> bool:
        """Whether nothing of the answer could be run: no code in it, or such as does not load."""
        return self.status == "failed" and bool(self.cases) and all(case.outcome == "not_run" for case in self.cases)


# ----------------------------------------------------------------------------------------------------- exam and gate


class AdapterRef(Record):
    """An adapter on disk with the digest of its weights. The base model without an adapter is None, not a record."""

    path: str
    sha256: str


class PolicyRef(Record):
    """Which policy a stage works with: a base model and an adapter, or none."""

    base: str
    fingerprint: str
    """Of the base model's files; see `base_model.fingerprint`."""
    adapter: AdapterRef | None = None

    @property
    def name(self) -> str:
        """`base`, or the SHA-256 of the adapter's weights."""
        return self.adapter.sha256 if self.adapter else "base"


class TrainReport(Record):
    """The candidate and how it came about. `candidate` is None when no group had a spread of rewards to learn from."""

    candidate: AdapterRef | None
    steps: int
    groups: int
    useful_groups: int
    reward_mean: float
    tokens: int
    """Of the rollouts trained on, once per epoch."""
    rehearsed: int = 0
    """Earlier answers that were trained on too; `rehearsal.jsonl` has them."""
    duration_s: float


class Recited(Record):
    """No model, but answers that every problem brings along: what an exam must score right, and what it must not."""

    recites: Literal["reference", "empty"]
    """The problem's own solution, or what it shows of a program and nothing more."""

    @property
    def name(self) -> str:
        return self.recites


Examinee = PolicyRef | Recited
"""Who sits an exam."""


class ProblemScore(Record):
    """How a policy did on one problem of a suite."""

    problem_id: str
    entry_point: str
    samples: int
    """Answers that were judged; those lost to an infrastructure fault are not among them."""
    correct: int


class ExamReport(Record):
    """A policy on a suite."""

    suite: str
    suite_digest: str
    policy: str
    """`base`, or the SHA-256 of the adapter; `reference` or `empty` where no model answered."""
    base_model: str
    k: int
    """Samples per problem that were asked for."""
    temperature: float
    top_p: Share = 1.0
    max_tokens: int = 0
    seed: int
    pass_at: dict[int, Share]
    """Unbiased pass@k for several k up to the number of samples."""
    intervals: dict[int, tuple[Share, Share]] = {}
    """Of each pass@k, by bootstrap over the problems; see exams/scores.py."""
    pass_at_own_k: Share | None = None
    """Mean over the problems of pass@k with the k that the suite gives for each; None when it gives none."""
    problems: tuple[ProblemScore, ...]
    tokens: int
    truncated_share: Share
    """Answers that the limit on tokens cut off."""
    unusable_share: Share = 0.0
    """Answers of which nothing could be run: without code, or with code that does not load."""
    wrong_share: Share = 0.0
    """Answers that could be judged and are wrong."""
    infrastructure_faults: int
    sandbox: str = "none"
    code: str = ""
    """Version of the code that sat the exam; see exams/key.py."""
    sampling_s: float = 0.0
    """Part of `duration_s` that answering took; nearly all else is judging."""
    duration_s: float

    @property
    def complete(self) -> bool:
        """Whether every sample of every problem was judged. Only complete exams count at the gate."""
        return bool(self.problems) and all(problem.samples == self.k for problem in self.problems)


class SuiteComparison(Record):
    """Candidate against incumbent on one suite, paired over problems."""

    suite: str
    suite_digest: str
    incumbent: Share
    candidate: Share
    difference: float
    interval: tuple[float, float]
    """Bootstrap confidence interval of the difference of mean scores."""
    p_value: float
    """One-sided: how likely so large a gain is when both policies are equally good."""
    p_worse: float | None = None
    """The same for so large a loss. None in decisions from before it was worked out."""
    better: int
    """Problems on which the candidate scored higher."""
    worse: int


@dataclass(frozen=True)
class PastScores:
    """What the ledger knows of earlier accepted scores on the benchmark (pass@1)."""

    best: float | None = None
    ema: float | None = None


@dataclass(frozen=True)
class Lineage:
    """Where a candidate comes from."""

    incumbent: AdapterRef | None = None
    learner: AdapterRef | None = None
    """What it was trained from: the incumbent, or an earlier candidate that is on probation."""
    waited: int = 0
    """Iterations that the learner has been on probation."""
    tries: int = 0
    """Candidates before that were not accepted."""


Outcome = Literal["accepted", "probation", "rejected"]
"""Of a candidate at the gate. On probation, training goes on from it while the incumbent stays what it is."""


class Approval(Record):
    """The answer of a person who was asked about an accept, or what was done without one."""

    accept: bool
    comment: str = ""
    in_time: bool = True
    """Whether anybody answered within the time limit."""


class GateDecision(Record):
    """What the gate decided about a candidate, with the numbers that it rests on."""

    iteration: int
    outcome: Outcome
    rule: Literal["paired", "strict", "threshold", "ema"]
    reason: str
    benchmark: SuiteComparison | None
    holdout: SuiteComparison | None
    candidate: AdapterRef | None
    incumbent: AdapterRef | None
    learner: AdapterRef | None
    """What the candidate was trained from: the incumbent, or an earlier candidate that was on probation."""
    waited: int = 0
    """Iterations that the learner had been on probation."""
    tries: int = 0
    """Candidates before that were not accepted; in older decisions, only those compared with the same incumbent."""
    approval: Approval | None = None
    """None when nobody was asked."""

    @property
    def accepted(self) -> bool:
        return self.outcome == "accepted"

    @property
    def rejected(self) -> bool:
        return self.outcome == "rejected"
