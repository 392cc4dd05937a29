"""mlx-lm's batched generation with our policies.

mlx-lm batches requests that name the same model and adapter, and lets a batch run out before it loads another one. So
all that hot reload takes is to say, when a request's turn comes, which adapter a pointer points at in that moment: what
is being written is finished with the weights that it was begun with, what comes later waits for that and then has the
new ones.
"""

import gc
import logging
import os
import threading
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.server import CompletionRequest, ModelDescription, ModelProvider, ResponseGenerator

from rlm_core.config import ServeSection
from rlm_core.errors import RlmError
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.serving.pointers import FOLLOWED, Pointers, Served
from rlm_core.serving.requests import Refused
from rlm_core.state.ledger import PointerName

_log = logging.getLogger(__name__)


@dataclass
class ServedRequest(CompletionRequest):
    """A request that knows who answers it."""

    served: Served
    pointer: PointerName | None = None
    """What was asked for, when it was no adapter in particular: `served` is settled when the request's turn comes."""


def library_arguments(base: str, section: ServeSection) -> Namespace:
    """What mlx-lm's command line would have made of our settings."""
    return Namespace(
        model=base,
        adapter_path=None,
        draft_model=None,
        num_draft_tokens=0,
        trust_remote_code=False,
        chat_template="",
        use_default_chat_template=False,
        chat_template_args={"enable_thinking": False},  # as in training and exams, see `Language.prompt_tokens`
        allowed_origins=[],
        pipeline=False,
        temp=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        max_tokens=section.max_tokens,
        decode_concurrency=section.at_once,
        prompt_concurrency=min(8, section.at_once),
        prefill_step_size=2048,
        prompt_cache_size=10,
        prompt_cache_bytes=None,
        kv_bits=None,
        kv_group_size=64,
        quantized_kv_start=0,
    )


class PolicyProvider(ModelProvider):
    """Loads policies as training and exams do, one at a time."""

    model: Any
    tokenizer: Any
    model_key: Any

    def __init__(self, pointers: Pointers, arguments: Namespace):
        self._pointers = pointers
        self._policy: Policy | None = None
        self._failure: RlmError | None = None
        self._tried = threading.Event()
        self.vocabulary = 0
        super().__init__(arguments)

    def wait_until_loaded(self) -> None:
        """Wait for the first policy. Raises what kept it from being loaded."""
        self._tried.wait()
        if self._failure:
            raise self._failure

    def reset(self) -> None:
        self._policy = None
        super().reset()

    def load_default(self) -> None:
        try:
            self.load(self.cli_args.model, self._pointers.at(FOLLOWED))
        except RlmError as error:
            self._failure = error
        finally:
            self._tried.set()

    def load(self, model_path: Any, adapter_path: Any = None, draft_model_path: Any = None) -> Any:  # noqa: ARG002
        """The model and tokenizer of the policy that stands in the place of the adapter's path; see `_next_request`.

        mlx-lm calls this between batches.

        Raises:
            ModelError, AdapterError: as `load_policy`; nothing is loaded then.
        """
        served: Served = adapter_path
        key = (served.policy.fingerprint, served.policy.name)
        if self.model_key != key:
            try:
                self._exchange(served)
            except BaseException:
                self.reset()
                raise
            self.model_key = key
            _log.info("serving %s (%s)", served.version, served.policy.name)
        return self.model, self.tokenizer

    def _exchange(self, served: Served) -> None:
        adapter = served.policy.adapter
        if not (self._policy and adapter and self._policy.exchange_adapter(adapter)):
            self.reset()
            gc.collect()
            mx.clear_cache()
            self._policy = load_policy(served.policy.base, adapter)
        self.model, self.tokenizer = self._policy.model, self._policy.tokenizer
        self.vocabulary = len(self.tokenizer.get_vocab())
        self.is_batchable = all(hasattr(cache, "merge") for cache in make_prompt_cache(self.model))


class Generator(ResponseGenerator):
    """mlx-lm's generation thread, in which requests get their adapters."""

    model_provider: PolicyProvider

    def __init__(self, pointers: Pointers, base: str, section: ServeSection):
        self._pointers = pointers
        self._longest_prompt = section.max_prompt_tokens
        arguments = library_arguments(base, section)
        super().__init__(PolicyProvider(pointers, arguments), _PromptCache(arguments.prompt_cache_size))

    def _run_generate(self) -> None:
        _seed_by_chance()
        super()._run_generate()
        mx.clear_streams()  # else MLX now and then aborts a process that ends just after this thread

    def _next_request(self, timeout: float | None = None) -> Any:
        taken = super()._next_request(timeout)
        if taken is not None:
            _, request, arguments = taken
            if request.pointer:
                request.served = self._pointers.at(request.pointer)
            model: Any = ModelDescription  # which says that an adapter is a path
            arguments.model = model(model=self.cli_args.model, draft=None, adapter=request.served)
        return taken

    def _tokenize(self, tokenizer: Any, request: ServedRequest, arguments: Any) -> Any:
        """As in mlx-lm; a prompt may be token ids. What would stop the whole batch later on is refused here.

        Raises:
            Refused: the prompt is empty or too long, a token does not exist, a stop word cannot be looked for.
        """
        if isinstance(request.prompt, list):
            found: Any = (request.prompt, [request.prompt], ["assistant"], "normal", None)
        else:
            found = super()._tokenize(tokenizer, request, arguments)
        prompt, size = found[0], self.model_provider.vocabulary
        if not prompt:
            raise Refused(400, "prompt: is empty", "invalid_value", "prompt")
        if len(prompt) > self._longest_prompt:
            reason = f"the prompt has {len(prompt)} tokens; this server takes at most {self._longest_prompt}"
            raise Refused(400, reason, "context_length_exceeded", "prompt")
        if max(*prompt, *(arguments.logits.logit_bias or ()), 0) >= size:
            raise Refused(400, f"token ids must be below {size}", "invalid_value", "prompt")
        if arguments.sampling.top_k >= size:
            arguments.sampling.top_k = 0
        self._make_state_machine(self.model_provider.model_key, tokenizer, arguments.stop_words)
        return found

    def _serve_single(self, request: Any, stream: Any) -> None:
        super()._serve_single(request, stream)
        _seed_by_chance()  # a request's own seed must not make the answers after it alike


def _seed_by_chance() -> None:
    mx.random.seed(int.from_bytes(os.urandom(7)))


class _PromptCache(LRUPromptCache):
    """mlx-lm's, without the case in which nothing of the prompt would be left to compute, which ends its thread."""

    def fetch_nearest_cache(self, model: Any, tokens: list[int]) -> tuple[Any, list[int]]:
        cache, rest = super().fetch_nearest_cache(model, tokens)
        return (cache, rest) if rest else (None, tokens)
