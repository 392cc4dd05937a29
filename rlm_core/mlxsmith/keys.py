"""Each key of mlxsmith's config: the default that it has there, and what becomes of it here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Theirs = Mapping[str, Any]
"""All keys, as `section.key`, with what was given or the default."""
Becomes = tuple[dict[str, Any], str]
"""Settings of ours as `section.key`, and what is different about them, or why there are none."""


@dataclass(frozen=True)
class Key:
    """One key of theirs."""

    default: Any
    becomes: Callable[[Any, Theirs], Becomes]


def _as(*targets: str, but: str = "") -> Callable[[Any, Theirs], Becomes]:
    return lambda value, _: (dict.fromkeys(targets, value), but)


def _not(reason: str) -> Callable[[Any, Theirs], Becomes]:
    return lambda _value, _: ({}, reason)


def _end(target: str, place: int) -> Callable[[Any, Theirs], Becomes]:
    """One end of a range of ours, as `target[place]`."""
    return lambda value, _: ({f"{target}[{place}]": value}, "")


# ------------------------------------------------------------------------------------------------- what takes a thought


def _scale(alpha: int, theirs: Theirs) -> Becomes:
    if theirs["lora.fine_tune_type"] == "full":
        return {}, "full training has no scale"
    if theirs["lora.scale"] is not None:
        return {}, "lora.scale wins over it, there too"
    return {"train.adapter.scale": alpha / theirs["lora.r"]}, "the scale is alpha / r"


def _low_rank(target: str) -> Callable[[Any, Theirs], Becomes]:
    def becomes(value: Any, theirs: Theirs) -> Becomes:
        if theirs["lora.fine_tune_type"] == "full":
            return {}, "full training does not use it"
        return ({target: value}, "") if value is not None else ({}, "lora.alpha says it")

    return becomes


_PLACES = {
    **{f"{letter}_proj": f"self_attn.{letter}_proj" for letter in "qkvo"},
    **{f"{name}_proj": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}


def _modules(names: list[str], _: Theirs) -> Becomes:
    return {"train.adapter.modules": [_PLACES.get(name, name) for name in names]}, "named by their place in a layer"


def _method(normalised: bool, _: Theirs) -> Becomes:
    method = "grpo" if normalised else "dr_grpo"
    return {"train.method": method}, "it clips and counts each token; docs/training.md has the equations"


def _kl_weight(weight: float, theirs: Theirs) -> Becomes:
    if not theirs["rft.reference_model"]:
        return {}, "without rft.reference_model it had no effect there, so train.kl_weight stays 0"
    return {"train.kl_weight": weight}, "an estimate that is never negative, for each token"


def _reference(name: str | None, theirs: Theirs) -> Becomes:
    if name in (None, theirs["model.id"]):
        return {}, "the reference is always the base model, and loaded only where train.kl_weight asks for it"
    return {}, "another model than the base cannot be the reference"


def _mutants(count: int, theirs: Theirs) -> Becomes:
    if not theirs["rlm.use_task_mutation"]:
        return {"mutate.per_problem": 0}, "use_task_mutation is off"
    return {"mutate.per_problem": count}, "mutate.parents says how many problems are mutated; there all were"


def _tasks(count: int, _: Theirs) -> Becomes:
    return {"generate.problems": count, "generate.sources": {"model": 1}}, "each is asked for by itself"


def _domains(names: list[str], _: Theirs) -> Becomes:
    return {"generate.domains": ["maths" if name == "math" else name for name in names]}, ""


def _rule(name: str, theirs: Theirs) -> Becomes:
    if name == "threshold":
        gain = theirs["rlm.gating_threshold"]
        return (
            {"gate.rule": "paired", "gate.min_gain": gain},
            "there, the best score plus a threshold; here, a proved gain of so much over the incumbent",
        )
    return {"gate.rule": name}, "the base model sits the exam first; docs/gate.md compares it with the rule paired"


def _rule_number(rule: str, target: str | None, reason: str) -> Callable[[Any, Theirs], Becomes]:
    def becomes(value: Any, theirs: Theirs) -> Becomes:
        if theirs["rlm.gating"] != rule:
            return {}, f"only gating: {rule} uses it"
        return ({target: value}, "") if target else ({}, reason)

    return becomes


def _sandbox(name: str, _: Theirs) -> Becomes:
    if name == "docker":
        return {"verify.sandbox": "docker"}, "an iteration stops when there is no engine, instead of doing without"
    return {"verify.sandbox": "auto"}, "answers ran on the bare machine there; here a sandbox is never left out"


def _docker(*targets: str) -> Callable[[Any, Theirs], Becomes]:
    def becomes(value: Any, theirs: Theirs) -> Becomes:
        if theirs["rlm.verifier_backend"] != "docker":
            return {}, "only verifier_backend: docker uses it"
        return dict.fromkeys(targets, value), ""

    return becomes


BLOCKED = [
    r"\bsubprocess\b",
    r"\bos\.system\b",
    r"\bshutil\.rmtree\b",
    r"\brm\s+-rf\b",
    r"\brequests\b",
    r"\burllib\b",
    r"\bsocket\b",
    r"\bhttp[s]?://",
    r"\bpip\s+install\b",
    r"\bapt-get\b",
    r"\bbrew\s+install\b",
]


def _blocked(patterns: list[str], _: Theirs) -> Becomes:
    if patterns == BLOCKED:
        return {}, "filter.blocked has a longer list by default"
    return {"filter.blocked": [f"(?i){pattern}" for pattern in patterns]}, "case is ignored, as there"


# ------------------------------------------------------------------------------------------------------------ the table

_NO_EFFECT = "had no effect in the loop"
_OTHER_TRAINING = "belongs to other training than this loop's"
_SERVER = "is an option of `rlm serve`"

KEYS = {
    "model.id": Key("mlx-community/Llama-3.2-3B-Instruct-4bit", _as("model.base")),
    "model.backend": Key("mlx-lm", _not("mlx-lm is the only one")),
    "model.dtype": Key("bf16", _not("weights keep the type that they have on disk; on a CPU they become 32-bit")),
    "model.quantization": Key("none", _not("had no effect there either; `mlx_lm.convert -q` quantises a base model")),
    "model.max_seq_len": Key(8192, _not("nothing is cut: filter.prompt_chars and rollout.max_tokens bound the length")),
    "model.trust_remote_code": Key(False, _not("code from a model's repository is never run")),
    "model.use_chat_template": Key(True, _not("a chat template is used wherever the tokenizer has one")),
    "accel.backend": Key("none", _not("there are no other kernels to choose")),
    "accel.compile_cache": Key("cache/compiled_kernels", _not("there are no other kernels to choose")),
    "train.seed": Key(1337, _as("seed", but="every random number derives from it")),
    "train.batch_size": Key(1, _not(_OTHER_TRAINING)),
    "train.grad_accum": Key(8, _not(f"{_NO_EFFECT}; train.minibatch is the number of answers of one step")),
    "train.lr": Key(2e-4, _as("train.learning_rate")),
    "train.weight_decay": Key(0.0, _as("train.weight_decay")),
    "train.iters": Key(1000, _not(_OTHER_TRAINING)),
    "train.save_every": Key(100, _not(f"{_OTHER_TRAINING}; here every step is a checkpoint")),
    "train.eval_every": Key(100, _not(_OTHER_TRAINING)),
    "train.log_every": Key(10, _not(f"{_OTHER_TRAINING}; here every step is recorded")),
    "train.train_on_prompt": Key(False, _not("rehearsal trains on answers only")),
    "train.max_grad_norm": Key(1.0, _as("train.max_grad_norm", but="it had no effect there")),
    "lora.r": Key(16, _low_rank("train.adapter.rank")),
    "lora.alpha": Key(32, _scale),
    "lora.dropout": Key(
        0.05, _not("dropout makes log-probabilities differ by themselves, which the ratio would count")
    ),
    "lora.target_modules": Key(["q_proj", "v_proj", "o_proj"], _modules),
    "lora.num_layers": Key(0, _as("train.adapter.layers")),
    "lora.scale": Key(None, _low_rank("train.adapter.scale")),
    "lora.fine_tune_type": Key("lora", _as("train.adapter.kind")),
    "pref.algo": Key("dpo", _not(_OTHER_TRAINING)),
    "pref.beta": Key(0.1, _not(_OTHER_TRAINING)),
    "pref.kl_coeff": Key(0.0, _not(_OTHER_TRAINING)),
    "pref.reference_model": Key(None, _not(_OTHER_TRAINING)),
    "rft.algo": Key("grpo", _not("rft.normalize_advantage says which method it becomes")),
    "rft.rollouts": Key(8, _not(f"{_OTHER_TRAINING}; rlm.rollouts_per_task is the loop's")),
    "rft.kl_coeff": Key(0.02, _kl_weight),
    "rft.max_steps_per_task": Key(1, _not(_NO_EFFECT)),
    "rft.temperature": Key(0.8, _as("rollout.temperature", "generate.temperature", "mutate.temperature")),
    "rft.max_new_tokens": Key(256, _as("rollout.max_tokens")),
    "rft.normalize_advantage": Key(True, _method),
    "rft.reference_model": Key(None, _reference),
    "infer.max_new_tokens": Key(256, _not(_NO_EFFECT)),
    "infer.temperature": Key(0.7, _not(_NO_EFFECT)),
    "infer.top_p": Key(1.0, _as("rollout.top_p")),
    "infer.top_k": Key(None, lambda value, _: ({"rollout.top_k": value or 0}, "")),
    "serve.api": Key("openai", _not("there is one")),
    "serve.host": Key("0.0.0.0", _not(_SERVER)),
    "serve.port": Key(8080, _not(_SERVER)),
    "serve.ui": Key(False, _not("what is to be seen is in Prefect's UI: `rlm up`")),
    "serve.stream": Key(True, _not("a request says whether it wants a stream")),
    "rlm.iterations": Key(50, _not("`rlm run --iterations N`, or a parameter of the deployment `improve`; 0 goes on")),
    "rlm.sleep_between": Key(0, _not("pause_s, a parameter of the deployment `improve`")),
    "rlm.tasks_per_iter": Key(80, _tasks),
    "rlm.rollouts_per_task": Key(8, _as("rollout.group_size")),
    "rlm.attempts_per_task": Key(3, _not(_NO_EFFECT)),
    "rlm.corpus_max": Key(8000, _as("train.rehearsal.corpus_size")),
    "rlm.mix_old_ratio": Key(0.4, _as("train.rehearsal.share", but="of the answers that are trained on")),
    "rlm.hard_ratio": Key(0.6, _as("train.rehearsal.hard_share", but="hard is a low pass rate, not a long prompt")),
    "rlm.mutations_per_task": Key(1, _mutants),
    "rlm.use_task_mutation": Key(True, _not("mutate.per_problem: 0 switches it off")),
    "rlm.gating": Key("strict", _rule),
    "rlm.gating_threshold": Key(0.0, _rule_number("threshold", None, "it became gate.min_gain, see rlm.gating")),
    "rlm.gating_ema_alpha": Key(0.2, _rule_number("ema", "gate.ema_weight", "")),
    "rlm.infer_staleness": Key(0, _as("gate.infer_staleness")),
    "rlm.require_recursion": Key(False, _as("generate.use_recursion")),
    "rlm.task_domains": Key(["strings", "arrays", "math", "dp", "graphs"], _domains),
    "rlm.benchmark_suite": Key("eval/suites/rlm_bench.yaml", _as("evaluate.benchmark")),
    "rlm.holdout_suite": Key("eval/suites/rlm_holdout.yaml", _as("evaluate.holdout")),
    "rlm.verifier_timeout_s": Key(30, _as("verify.limits.total_s", but="calls have CPU time of their own besides")),
    "rlm.verifier_backend": Key("pytest", _sandbox),
    "rlm.docker_image": Key("python:3.11-slim", _docker("verify.container.image")),
    "rlm.docker_memory_mb": Key(512, _docker("verify.container.memory_mb", "verify.limits.memory_mb")),
    "rlm.docker_cpus": Key(1.0, _docker("verify.container.cpus")),
    "rlm.docker_pids": Key(128, _docker("verify.container.pids")),
    "rlm.task_gen_max_new_tokens": Key(1024, _not("there for all problems at once; generate.max_tokens is for one")),
    "rlm.similarity_threshold": Key(0.85, _as("filter.max_similarity", but="of 3 words in a row, not of single ones")),
    "rlm.min_task_desc_len": Key(10, _end("filter.prompt_chars", 0)),
    "rlm.min_task_asserts": Key(2, _as("filter.min_cases")),
    "rlm.max_task_prompt_len": Key(2000, _end("filter.prompt_chars", 1)),
    "rlm.min_task_tests_len": Key(20, _end("filter.cases_chars", 0)),
    "rlm.max_task_tests_len": Key(8000, _end("filter.cases_chars", 1)),
    "rlm.blocked_task_patterns": Key(BLOCKED, _blocked),
    "logging.level": Key("INFO", _not("what happens is in the run's directory and in Prefect's UI")),
    "logging.file": Key(None, _not("what happens is in the run's directory and in Prefect's UI")),
    "logging.format": Key("%(asctime)s - %(name)s - %(levelname)s - %(message)s", _not("see logging.level")),
}
"""In the order of their file."""
