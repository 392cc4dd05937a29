"""A policy is a base model and, if it has one, an adapter: load, sample, score.

Axes: B sequences in a batch, T tokens, V vocabulary. Log-probabilities are float32, in nats.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import dequantize_model, load_model, load_tokenizer, save_model

from rlm_core import progress
from rlm_core.config import AdapterSection
from rlm_core.cpu.swiglu import use_fast_swiglu
from rlm_core.errors import AdapterError, InfrastructureFault, ModelError, one_line
from rlm_core.files import sha256_of
from rlm_core.model import adapters
from rlm_core.model.base_model import base_path, end_token_ids
from rlm_core.model.decoding import Completion, Decoder, Request
from rlm_core.model.draws import Sampling
from rlm_core.model.head import chosen_logprobs
from rlm_core.model.language import Language
from rlm_core.model.shared_prompt import PromptCache, use_shared_attention
from rlm_core.model.tensors import flat, read_tensors, write_tensors
from rlm_core.records import AdapterRef

_device = threading.RLock()
"""One user of the device at a time: generation, scoring and training are not overlapped on one machine."""

_log = logging.getLogger(__name__)

Scorer = Callable[[mx.array, mx.array, float], mx.array]
"""`Policy.answer_logprobs` of some policy, not differentiable."""


# -------------------------------------------------------------------------------------------------------------- policy


class Policy(Language):
    """A loaded base model with an adapter or without one. Made by `load_policy`."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        base: str,
        adapter: AdapterRef | None = None,
        shape: AdapterSection | None = None,
        quantised: frozenset[int] = frozenset(),
    ):
        super().__init__(tokenizer)
        self.model = model
        self.base = base
        self.adapter = adapter
        self.shape = shape
        """Of the adapter that is on the model; None when there is none."""
        self.quantised = quantised
        """Bits per weight of the base's quantised layers, also where they were unpacked."""

    @property
    def name(self) -> str:
        """`base`, or the SHA-256 of the adapter's weights."""
        return self.adapter.sha256 if self.adapter else "base"

    def sample(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        batch_size: int,
        on_tokens: Callable[[int, int], None] = lambda _tokens, _finished: None,
    ) -> list[Completion]:
        """Answer every request.

        Equal prompts that follow each other are prefilled once and share the result.

        Args:
            requests: in the order of the result.
            sampling: the same for all.
            batch_size: sequences decoded at once.
            on_tokens: called after each step with the tokens sampled and the answers finished in it; what it raises
                ends the sampling.
        """
        self.model.eval()
        decoder = Decoder(
            self.model,
            lambda: make_prompt_cache(self.model),
            sampling,
            batch_size,
            lambda request, tokens: self.why_ended(request, tokens, sampling.stop_after_code),
        )
        return decoder.run(requests, on_tokens)

    def answer_logprobs(
        self, prompt: mx.array, answers: mx.array, temperature: float = 1.0, differentiable: bool = True
    ) -> mx.array:
        """Log-probabilities of answers to one prompt.

        The prompt runs through the model once and the answers attend to its keys and values, which saves most of the
        work when prompts are as long as answers. Padding on an answer's right does not change what stands before it.
        Models whose caches do not keep everything compute each row from its beginning; the log says so.

        Args:
            prompt: int [1, P], the prompt's token ids.
            answers: int [B, T], token ids, padded on the right.
            temperature: logits are divided by it.
            differentiable: whether a gradient may be asked for; it costs as much again.

        Returns:
            float32 [B, T]: the log-probability of each answer token given the prompt and the tokens before it.
        """
        rows = answers.shape[0]
        if self._can_share_prompts:
            caches = [PromptCache() for _ in self.model.layers]
            last = self._hidden(prompt, caches)[:, -1:]
            rest = self._hidden(answers[:, :-1], caches) if answers.shape[1] > 1 else None
            first = mx.broadcast_to(last, (rows, 1, last.shape[-1]))
            hidden = first if rest is None else mx.concatenate([first, rest], axis=1)
        else:
            tokens = mx.concatenate([mx.broadcast_to(prompt, (rows, prompt.shape[1])), answers[:, :-1]], axis=1)
            hidden = self._hidden(tokens, None)[:, prompt.shape[1] - 1 :]
        return chosen_logprobs(self._head, hidden, answers, temperature, differentiable)

    @cached_property
    def _can_share_prompts(self) -> bool:
        odd = {type(cache).__name__ for cache in make_prompt_cache(self.model)} - {KVCache.__name__}
        if odd:
            _log_plain_scoring(self.base, "/".join(sorted(odd)))
        return not odd

    def scoring_logits(self, tokens: mx.array) -> mx.array:
        """Logits [B, T, V] as `answer_logprobs` computes them, which must be those of the model itself."""
        return self._head(self._hidden(tokens, None))

    def _hidden(self, tokens: mx.array, caches: list[Any] | None) -> mx.array:
        hidden: mx.array = self.model.model(tokens, cache=caches)
        return hidden

    def _head(self, hidden: mx.array) -> mx.array:
        head = getattr(self.model, "lm_head", None)
        logits: mx.array = head(hidden) if head is not None else self.model.model.embed_tokens.as_linear(hidden)
        return logits

    def add_adapter(self, shape: AdapterSection, seed: int) -> None:
        """Make an untrained adapter, which changes nothing yet, and make only it trainable.

        Raises:
            AdapterError: this model has no such modules, or they do not allow this kind.
        """
        known = {name for layer in self.model.layers for name, _ in layer.named_modules()}
        if missing := sorted(set(shape.modules) - known):
            raise AdapterError(f"train.adapter.modules: {', '.join(missing)} not in {self.base}")
        adapters.check_quantised(self.base, self.quantised, shape.kind)
        total = len(self.model.layers)
        mx.random.seed(seed % 2**32)
        self.model.freeze()
        if shape.kind != "full":
            parameters = adapters.lora_parameters(shape)
            try:
                linear_to_lora_layers(self.model, shape.layers or total, parameters, use_dora=shape.kind == "dora")
            except ValueError as error:
                raise AdapterError(f"train.adapter.modules: {error}") from error
        self.shape = adapters.settled(shape, total)
        _make_trainable(self.model, self.shape)
        mx.eval(self.model.parameters())

    @contextmanager
    def base_scorer(self) -> Iterator[Scorer]:
        """What scores answers as the base policy does, for the time of the block.

        LoRA layers are switched off. DoRA and full training leave nothing to switch off, so the base is loaded a second
        time; the copy's memory is free again when the block and whoever holds the scorer have ended.
        """
        if self.shape is None or self.shape.kind == "lora":
            yield self._score_with_adapter_off
        else:
            yield partial(load_policy(self.base).answer_logprobs, differentiable=False)

    def _score_with_adapter_off(self, prompt: mx.array, answers: mx.array, temperature: float) -> mx.array:
        with self.adapter_off():
            return self.answer_logprobs(prompt, answers, temperature, differentiable=False)

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """The base policy, for the time of the block: LoRA layers contribute nothing."""
        assert self.shape is None or self.shape.kind == "lora", "only LoRA layers can be switched off"
        layers = [module for _, module in self.model.named_modules() if hasattr(module, "lora_a")]
        scales = [layer.scale for layer in layers]
        try:
            for layer in layers:
                layer.scale = 0.0
            yield
        finally:
            for layer, scale in zip(layers, scales, strict=True):
                layer.scale = scale

    def exchange_adapter(self, adapter: AdapterRef) -> bool:
        """Put another adapter in the place of this one, if it is of the same kind and shape; the base stays loaded.

        Returns:
            Whether it was: else the policy is what it was.

        Raises:
            AdapterError: it is damaged or was made for another base. The policy must not be used any more.
        """
        adapters.check_adapter(self.base, adapter)
        if self.shape is None or not adapters.same_shape(
            self.shape, adapters.read_shape(adapter, len(self.model.layers))
        ):
            return False
        with _misfit(self.base, adapter):
            _check_names(self.model, adapter)
            self.model.load_weights(str(Path(adapter.path, adapters.WEIGHTS)), strict=False)
        self.model = _unpacked_on_cpu(self.model)
        mx.eval(self.model.parameters())
        self.adapter = adapter
        return True

    def trainable(self) -> dict[str, mx.array]:
        """The trainable parameters by name: those of the adapter."""
        return flat(self.model.trainable_parameters())

    def save_adapter(self, directory: Path, origin: dict[str, Any]) -> AdapterRef:
        """Write the adapter in mlx-lm's format; `origin` (source adapter, run, iteration …) goes into its config."""
        assert self.shape is not None, "a policy without an adapter has nothing to save"
        weights = self.trainable()
        path = write_tensors(directory / adapters.WEIGHTS, weights, {"format": "mlx"})
        layers = self.shape.layers or len(self.model.layers)
        adapters.write_adapter_config(directory, self.base, self.shape, layers, origin)
        return AdapterRef(path=str(directory), sha256=sha256_of(path))

    def save_fused(self, directory: Path) -> None:
        """Write the weights with the adapter's changes in them, none of them quantised. It cannot be trained after."""
        layers = [
            (name, part.fuse(dequantize=True)) for name, part in self.model.named_modules() if hasattr(part, "fuse")
        ]
        self.model.update_modules(tree_unflatten(layers))
        self.model = dequantize_model(self.model)
        save_model(directory, self.model)

    @property
    def dtype(self) -> mx.Dtype:
        """Of the weights; where they differ, that of the first."""
        weights = flat(self.model.parameters())
        return next(value.dtype for value in weights.values() if value.dtype in _FLOATS)


_FLOATS = (mx.float32, mx.bfloat16, mx.float16)


def _make_trainable(model: nn.Module, shape: AdapterSection) -> None:
    """Make the parameters of the adapter that is on the model trainable, and nothing else.

    The only place that says which they are: training, checkpoints and adapter files take what is trainable.
    """
    model.freeze()
    keys = ["lora_a", "lora_b"] + (["m"] if shape.kind == "dora" else [])
    for layer in model.layers[-shape.layers :]:  # all of them when `layers` is 0
        for name, module in layer.named_modules():
            if name in shape.modules and shape.kind == "full":
                module.unfreeze()
            elif name in shape.modules and "lora_a" in module:
                module.unfreeze(recurse=False, keys=keys)


@cache
def _log_plain_scoring(base: str, kinds: str) -> None:
    """Once for each model: it is no fault, and an iteration loads a model several times."""
    _log.warning(
        "%s: log-probabilities are computed without sharing the prompt among its answers, which is slower: "
        "its cache is a %s",
        base,
        kinds,
    )


# ------------------------------------------------------------------------------------------------------------- loading

_OUT_OF_MEMORY = ("unable to allocate", "attempting to allocate", "insufficient memory", "out of memory")
"""As MLX says it, on a CPU, for one array, on Metal and on CUDA."""

_last: tuple[tuple[str, str | None], Policy] | None = None


@contextmanager
def device_policy(base: str, adapter: AdapterRef | None) -> Iterator[Policy]:
    """The device and a policy for the time of the block. The policy must not be changed; the last one is kept loaded.

    Raises:
        ModelError, AdapterError: as `load_policy`.
    """
    global _last
    with _device, _out_of_memory_is_a_fault():
        progress.restart_time_limit()
        key = (base, adapter.sha256 if adapter else None)
        if _last is None or _last[0] != key:
            _last = None
            _last = (key, load_policy(base, adapter))
        yield _last[1]


@contextmanager
def device_policy_to_train(base: str, adapter: AdapterRef | None) -> Iterator[Policy]:
    """The device and a policy of its own that may be changed, for the time of the block."""
    global _last
    with _device, _out_of_memory_is_a_fault():
        progress.restart_time_limit()
        _last = None
        yield load_policy(base, adapter)


@contextmanager
def _out_of_memory_is_a_fault() -> Iterator[None]:
    """Another program may have had the memory: what is kept loaded is let go, and another try may find enough.

    Raises:
        InfrastructureFault: in the place of the device's own complaint, with the settings that say how much is needed.
    """
    global _last
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _last = None
        mx.clear_cache()
        raise InfrastructureFault(
            f"the model ran out of memory ({one_line(error, 120) or 'no reason given'}); smaller rollout.batch_size "
            "and train.micro_batch need less at a time"
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


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
        if _is_out_of_memory(error):
            raise
        raise ModelError(f"model.base = {base!r}: cannot be loaded: {one_line(error, 200)}") from error
    quantised = frozenset(module.bits for _, module in model.named_modules() if hasattr(module, "bits"))
    model = _unpacked_on_cpu(model)
    use_fast_swiglu(model)
    use_shared_attention(model)
    model.freeze()
    shape = _put_on(model, base, adapter) if adapter else None
    model = _unpacked_on_cpu(model)  # the adapter may be in 16 bits, too
    # Dropout, which an adapter from elsewhere may have, would make log-probabilities differ by itself.
    model.eval()
    mx.eval(model.parameters())
    policy = Policy(model, tokenizer, base, adapter, shape, quantised)
    _check_scoring(policy)
    return policy


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


def _unpacked_on_cpu(model: nn.Module) -> nn.Module:
    if mx.default_device() == mx.cpu:
        model = dequantize_model(model)
        model.set_dtype(mx.float32)
    return model


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


def _put_on(model: nn.Module, base: str, adapter: AdapterRef) -> AdapterSection:
    """Put the adapter's layers and weights on the model and make only them trainable; the shape that it has."""
    adapters.check_adapter(base, adapter)
    shape = adapters.read_shape(adapter, len(model.layers))
    with _misfit(base, adapter):
        load_adapters(model, adapter.path)
        _make_trainable(model, shape)
        _check_names(model, adapter)
    return shape


def _check_names(model: nn.Module, adapter: AdapterRef) -> None:
    """Raises ValueError when the adapter's weights are not exactly those that are trainable in the model."""
    expected = flat(model.trainable_parameters())
    found = read_tensors(Path(adapter.path, adapters.WEIGHTS))
    # mlx-lm leaves what is missing at random values; what the config does not name would be lost when saving.
    if odd := sorted(expected.keys() ^ found.keys()):
        raise ValueError(f"weights and config do not agree about {odd[0]} and {len(odd) - 1} others")


@contextmanager
def _misfit(base: str, adapter: AdapterRef) -> Iterator[None]:
    """Raises AdapterError in the place of what a library says when weights and model do not fit."""
    try:
        yield
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise AdapterError(f"{adapter.path} does not fit {base!r}: {one_line(error, 200)}") from error
