"""How a model's texts become tokens and back, and where its answers end. It needs the tokenizer, not the weights."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rlm_core.answers import has_whole_block
from rlm_core.model.decoding import FinishReason, Request


class Language:
    """A model's tokenizer with its chat template. Made by `loading.load_language`; every policy is one, too."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

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

    def prompt_text(self, tokens: Sequence[int]) -> str | None:
        """The text that the tokenizer makes these tokens of, special ones included; None when there is none.

        For those who take no token ids: they may put a beginning-of-text token before what they are given.
        """
        text = self.tokenizer.decode(list(tokens))
        start = getattr(self.tokenizer, "bos_token", None) or ""
        found = (text, text.removeprefix(start))
        return next((text for text in found if tuple(self.tokenizer.encode(text)) == tuple(tokens)), None)

    def text(self, tokens: Sequence[int]) -> str:
        """An answer's text, without the token that ended it."""
        kept = tokens[:-1] if tokens and tokens[-1] in self.end_tokens else tokens
        text: str = self.tokenizer.decode(list(kept))
        return text

    def answer_tokens(self, text: str) -> tuple[int, ...]:
        """An answer's text as token ids, with the token that ends an answer: what `text` undoes."""
        return (*self.tokenizer.encode(text, add_special_tokens=False), self._end_token)

    @cached_property
    def _end_token(self) -> int:
        """The token that ends an answer in the chat template, which need not be the tokenizer's own end token."""
        if self.tokenizer.chat_template is not None:
            turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            tokens: list[int] = list(self.tokenizer.apply_chat_template(turns))
            for token in reversed(tokens):
                if token in self._end_tokens:
                    return token
        own: int = self.tokenizer.eos_token_id
        return own

    def why_ended(self, request: Request, tokens: Sequence[int], stop_after_code: bool) -> FinishReason | None:
        """Why an answer ends with its last token; None when it goes on, as far as the words are concerned."""
        if stop_after_code and request.only_code_counts and self._ends_block(tokens):
            return "code"
        return "stop" if tokens[-1] in self._end_tokens else None

    def _ends_block(self, tokens: Sequence[int]) -> bool:
        """Whether the last token completes the answer's first block of code."""
        return tokens[-1] in self._fence_tokens and has_whole_block(self.text(tokens))

    @cached_property
    def _fence_tokens(self) -> frozenset[int]:
        """Tokens that can complete a closing fence."""
        vocabulary = self.tokenizer.get_vocab()
        return frozenset(token for text, token in vocabulary.items() if "`" in text)
