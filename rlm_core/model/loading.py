"""From files to a policy, or to its language alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial

import mlx.core as mx
from mlx_lm.utils import load_model, load_tokenizer

from rlm_core.cpu.swiglu import use_fast_swiglu
from rlm_core.errors import ModelError, one_line
from rlm_core.model.adapter_layers import put_on, unpacked_on_cpu
from rlm_core.model.base_model import base_path, end_token_ids
from rlm_core.model.language import Language
from rlm_core.model.policy import BaseLogprobs, Policy
from rlm_core.model.shared_prompt import use_shared_attention
from rlm_core.records import AdapterRef

_OUT_OF_MEMORY = ("unable to allocate", "attempting to allocate", "insufficient memory", "out of memory")
"""As MLX says it, on a CPU, for one array, on Metal and on CUDA."""


def load_policy(base: str, adapter: AdapterRef | None = None) -> Policy:
    """Load a base model and put an adapter on it.

    On a CPU, weights become float32 and quantised layers are unpacked: 16-bit and 4-bit arithmetic is slow there.

    Raises:
        ModelError: the model cannot be loaded.
        AdapterError: the adapter is incomplete, damaged or for another base.
    """
    path = base_path(base)
    try:
        model, config = load_model(path)
        tokenizer = load_tokenizer(path, eos_token_ids=end_token_ids(path, config))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(f"model.base = {base!r}: cannot be loaded: {one_line(error, 200)}") from error
    quantised = frozenset(module.bits for _, module in model.named_modules() if hasattr(module, "bits"))
    model = unpacked_on_cpu(model)
    use_fast_swiglu(model)
    use_shared_attention(model)
    model.freeze()
    shape = put_on(model, base, adapter) if adapter else None
    model = unpacked_on_cpu(model)  # the adapter may be in 16 bits, too
    # Dropout, which an adapter from elsewhere may have, would make log-probabilities differ by itself.
    model.eval()
    mx.eval(model.parameters())
    policy = Policy(model, tokenizer, base, adapter, shape, quantised)
    _check_scoring(policy)
    return policy


def is_out_of_memory(error: Exception) -> bool:
    """Whether the device had no memory left, however the library says so."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _check_scoring(policy: Policy) -> None:
    """Refuse an architecture whose logits are made in a way that `answer_logprobs` does not know.

    Raises:
        ModelError: the two ways of computing logits differ, or the model is built otherwise.
    """
    tokens = mx.array([[1, 2, 3]])
    try:
        known, expected = policy.scoring_logits(tokens), policy.model(tokens)
        agree = mx.allclose(known, expected, rtol=1e-2, atol=1e-2).item()
    except (AttributeError, TypeError, ValueError):
        agree = False
    if not agree:
        kind = getattr(policy.model, "model_type", type(policy.model).__name__)
        raise ModelError(f"model.base = {policy.base!r}: models of type {kind!r} cannot be trained here yet")


@lru_cache(maxsize=2)
def load_language(base: str) -> Language:
    """How a base model's texts become tokens, without its weights.

    Raises:
        ModelError: the tokenizer cannot be loaded.
    """
    path = base_path(base)
    try:
        config = json.loads((path / "config.json").read_text())
        return Language(load_tokenizer(path, eos_token_ids=end_token_ids(path, config)))
    except Exception as error:
        raise ModelError(f"model.base = {base!r}: its tokenizer cannot be loaded: {one_line(error, 200)}") from error


@contextmanager
def base_logprobs(policy: Policy) -> Iterator[BaseLogprobs]:
    """What scores answers as the base of a policy does, for the time of the block.

    LoRA layers are switched off. DoRA and full training leave nothing to switch off, so the base is loaded a second
    time; the copy's memory is free again when the block and whoever holds what it gives have ended.
    """
    if policy.shape is None or policy.shape.kind == "lora":
        yield partial(_score_with_adapter_off, policy)
    else:
        yield partial(load_policy(policy.base).answer_logprobs, differentiable=False)


def _score_with_adapter_off(policy: Policy, prompt: mx.array, answers: mx.array, temperature: float) -> mx.array:
    with policy.adapter_off():
        return policy.answer_logprobs(prompt, answers, temperature, differentiable=False)
