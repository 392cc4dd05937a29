"""A policy is a base model and, if it has one, an adapter: it samples, scores and saves; `loading` makes it.

Axes: B sequences in a batch, T tokens, V vocabulary. Log-probabilities are float32, in nats.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models.cache import KVCache, make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import dequantize_model, save_model

from rlm_core.config import AdapterSection
from rlm_core.errors import AdapterError
from rlm_core.files import sha256_of
from rlm_core.model import adapters
from rlm_core.model.adapter_layers import check_names, make_trainable, misfit, unpacked_on_cpu
from rlm_core.model.decoding import Completion, Decoder, Request
from rlm_core.model.draws import Sampling
from rlm_core.model.head import chosen_logprobs
from rlm_core.model.language import Language
from rlm_core.model.shared_prompt import PromptCache
from rlm_core.model.tensors import flat, write_tensors
from rlm_core.records import AdapterRef

_log = logging.getLogger(__name__)

BaseLogprobs = Callable[[mx.array, mx.array, float], mx.array]
"""`Policy.answer_logprobs` of the base policy, not differentiable."""


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

        What all prompts begin with is computed once, and so are equal prompts that follow each other.

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
        make_trainable(self.model, self.shape)
        mx.eval(self.model.parameters())

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
        with misfit(self.base, adapter):
            check_names(self.model, adapter)
            self.model.load_weights(str(Path(adapter.path, adapters.WEIGHTS)), strict=False)
        self.model = unpacked_on_cpu(self.model)
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


@cache
def _log_plain_scoring(base: str, kinds: str) -> None:
    """Once for each model: it is no fault, and an iteration loads a model several times."""
    _log.warning(
        "%s: log-probabilities are computed without sharing the prompt among its answers, which is slower: "
        "its cache is a %s",
        base,
        kinds,
    )
