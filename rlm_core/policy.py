"""A policy is a base model and, if it has one, an adapter: load, sample, score. The only importer of mlx_lm.

Axes: B sequences in a batch, T tokens, V vocabulary. Log-probabilities are float32, in nats.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import dequantize_model, load_model, load_tokenizer

from rlm_core import adapters, progress
from rlm_core.answers import has_whole_block
from rlm_core.base_model import base_path, end_token_ids
from rlm_core.config import LoraSection
from rlm_core.decoding import Completion, Decoder, FinishReason, Request
from rlm_core.draws import Sampling
from rlm_core.errors import AdapterError, ModelError
from rlm_core.files import sha256_of, write_atomic
from rlm_core.head import chosen_logprobs
from rlm_core.records import AdapterRef

_device = threading.RLock()
"""One user of the device at a time: generation, scoring and training are not overlapped on one machine."""


# -------------------------------------------------------------------------------------------------------------- policy


class Policy:
    """A loaded base model with an adapter or without one. Made by `load_policy`."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, base: str, adapter: AdapterRef | None, lora: LoraSection | None
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.base = base
        self.adapter = adapter
        self.lora = lora
        """Shape of the adapter's layers; None when the model has none."""

    @property
    def name(self) -> str:
        """`base`, or the SHA-256 of the adapter's weights."""
        return self.adapter.sha256 if self.adapter else "base"

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Every token id that ends an answer."""
        return tuple(sorted(self._end_tokens))

    @cached_property
    def _end_tokens(self) -> frozenset[int]:
        return frozenset(self.tokenizer.eos_token_ids)

    def prompt_tokens(self, *turns: str, opening: str = "") -> tuple[int, ...]:
        """A conversation as the token ids that the model answers to, by its chat template where it has one.

        Args:
            turns: what user and assistant said by turns, the user first and last.
            opening: the beginning of the answer, which the model goes on from.
        """
        assert len(turns) % 2 == 1
        if self.tokenizer.chat_template is None:
            return tuple(self.tokenizer.encode("\n\n".join(turns) + "\n" + opening))
        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        # enable_thinking is Qwen3's switch; templates that do not know it ignore it.
        tokens = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, enable_thinking=False)
        return (*tokens, *self.tokenizer.encode(opening, add_special_tokens=False))

    def text(self, tokens: Sequence[int]) -> str:
        """An answer's text, without the token that ended it."""
        kept = tokens[:-1] if tokens and tokens[-1] in self.end_tokens else tokens
        return self.tokenizer.decode(list(kept))

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
            self._why_ended if not sampling.stop_after_code else self._why_ended_or_code,
        )
        return decoder.run(requests, on_tokens)

    def _why_ended(self, _request: Request, tokens: Sequence[int]) -> FinishReason | None:
        return "stop" if tokens[-1] in self._end_tokens else None

    def _why_ended_or_code(self, request: Request, tokens: Sequence[int]) -> FinishReason | None:
        if request.only_code_counts and self._ends_block(tokens):
            return "code"
        return self._why_ended(request, tokens)

    def _ends_block(self, tokens: Sequence[int]) -> bool:
        """Whether the last token completes the answer's first block of code."""
        return tokens[-1] in self._fence_tokens and has_whole_block(self.text(tokens))

    @cached_property
    def _fence_tokens(self) -> frozenset[int]:
        """Tokens that can complete a closing fence."""
        vocabulary = self.tokenizer.get_vocab()
        return frozenset(token for text, token in vocabulary.items() if "`" in text)

    def answer_logprobs(
        self, prompt: mx.array, answers: mx.array, temperature: float = 1.0, differentiable: bool = True
    ) -> mx.array:
        """Log-probabilities of answers to one prompt.

        The prompt runs through the model once and the answers attend to its keys and values, which saves most of the
        work when prompts are as long as answers. Padding on an answer's right does not change what stands before it.

        Args:
            prompt: int [1, P], the prompt's token ids.
            answers: int [B, T], token ids, padded on the right.
            temperature: logits are divided by it.
            differentiable: whether a gradient may be asked for; it costs as much again.

        Returns:
            float32 [B, T]: the log-probability of each answer token given the prompt and the tokens before it.
        """
        rows = answers.shape[0]
        if all(type(cache) is KVCache for cache in make_prompt_cache(self.model)):
            caches = [_DifferentiableCache() for _ in self.model.layers]
            last = self._hidden(prompt, caches)[:, -1:]
            rest = self._hidden(answers[:, :-1], caches) if answers.shape[1] > 1 else None
            first = mx.broadcast_to(last, (rows, 1, last.shape[-1]))
            hidden = first if rest is None else mx.concatenate([first, rest], axis=1)
        else:
            tokens = mx.concatenate([mx.broadcast_to(prompt, (rows, prompt.shape[1])), answers[:, :-1]], axis=1)
            hidden = self._hidden(tokens, None)[:, prompt.shape[1] - 1 :]
        return chosen_logprobs(self._head, hidden, answers, temperature, differentiable)

    def scoring_logits(self, tokens: mx.array) -> mx.array:
        """Logits [B, T, V] as `answer_logprobs` computes them, which must be those of the model itself."""
        return self._head(self._hidden(tokens, None))

    def _hidden(self, tokens: mx.array, caches: list[Any] | None) -> mx.array:
        return self.model.model(tokens, cache=caches)

    def _head(self, hidden: mx.array) -> mx.array:
        head = getattr(self.model, "lm_head", None)
        return head(hidden) if head is not None else self.model.model.embed_tokens.as_linear(hidden)

    def add_lora(self, lora: LoraSection, seed: int) -> None:
        """Put untrained LoRA layers, whose output is zero, on the base model and make only them trainable.

        Raises:
            AdapterError: a module of `lora.modules` is in no layer of this model.
        """
        known = {name for layer in self.model.layers for name, _ in layer.named_modules()}
        if missing := sorted(set(lora.modules) - known):
            raise AdapterError(f"train.lora.modules: {', '.join(missing)} not in {self.base}")
        mx.random.seed(seed % 2**32)
        self.model.freeze()
        linear_to_lora_layers(self.model, lora.layers or len(self.model.layers), adapters.lora_parameters(lora))
        mx.eval(self.model.parameters())
        self.lora = lora

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """The base policy, for the time of the block: LoRA layers contribute nothing."""
        layers = [module for _, module in self.model.named_modules() if hasattr(module, "lora_a")]
        scales = [layer.scale for layer in layers]
        try:
            for layer in layers:
                layer.scale = 0.0
            yield
        finally:
            for layer, scale in zip(layers, scales, strict=True):
                layer.scale = scale

    def trainable(self) -> dict[str, mx.array]:
        """The trainable parameters by name."""
        return dict(tree_flatten(self.model.trainable_parameters()))

    def save_adapter(self, directory: Path, origin: dict[str, Any]) -> AdapterRef:
        """Write the adapter in mlx-lm's format; `origin` (source adapter, run, iteration …) goes into its config."""
        assert self.lora is not None, "a policy without an adapter has nothing to save"
        weights = self.trainable()
        path = write_atomic(
            directory / adapters.WEIGHTS, lambda file: mx.save_safetensors(str(file), weights, {"format": "mlx"})
        )
        adapters.write_adapter_config(
            directory, self.base, self.lora, self.lora.layers or len(self.model.layers), origin
        )
        return AdapterRef(path=str(directory), sha256=sha256_of(path))


class _DifferentiableCache:
    """Keys and values of one prompt, kept in the graph and broadcast to the answers that follow it."""

    def __init__(self) -> None:
        self.offset = 0
        self._keys: mx.array | None = None
        self._values: mx.array | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if self._keys is None or self._values is None:
            self._keys, self._values = keys, values
            self.offset = keys.shape[2]
            return keys, values
        return _joined(self._keys, keys), _joined(self._values, values)

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> Any:
        if self.offset == 0 and not return_array and not window_size:
            return "causal"
        return create_causal_mask(length, self.offset, window_size=window_size)


def _joined(prompt: mx.array, answers: mx.array) -> mx.array:
    """[1, H, P, D] before each row of [B, H, T, D]."""
    return mx.concatenate([mx.broadcast_to(prompt, (answers.shape[0], *prompt.shape[1:])), answers], axis=2)


# ------------------------------------------------------------------------------------------------------------- loading

_last: tuple[tuple[str, str | None], Policy] | None = None


@contextmanager
def device_policy(base: str, adapter: AdapterRef | None) -> Iterator[Policy]:
    """The device and a policy for the time of the block. The policy must not be changed; the last one is kept loaded.

    Raises:
        ModelError, AdapterError: as `load_policy`.
    """
    global _last
    with _device:
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
    with _device:
        progress.restart_time_limit()
        _last = None
        yield load_policy(base, adapter)


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
        raise ModelError(f"model.base = {base!r}: cannot be loaded: {' '.join(str(error).split())[:200]}") from error
    if mx.default_device() == mx.cpu:
        model = dequantize_model(model)
        model.set_dtype(mx.float32)
    model.freeze()
    lora = _put_on(model, base, adapter) if adapter else None
    mx.eval(model.parameters())
    policy = Policy(model, tokenizer, base, adapter, lora)
    _check_scoring(policy)
    return policy


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


def _put_on(model: nn.Module, base: str, adapter: AdapterRef) -> LoraSection:
    """Put the adapter's layers and weights on the model; the shape that it has."""
    adapters.check_adapter(base, adapter)
    config = adapters.read_adapter_config(adapter)
    try:
        load_adapters(model, adapter.path)
        parameters = config["lora_parameters"]
        layers = config["num_layers"]
        return LoraSection(
            rank=parameters["rank"],
            scale=float(parameters["scale"]),
            layers=0 if layers >= len(model.layers) else layers,
            modules=tuple(parameters["keys"]),
        )
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise AdapterError(f"{adapter.path} does not fit {base!r}: {reason}") from error
