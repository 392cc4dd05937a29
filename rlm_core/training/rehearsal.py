"""Rehearsal: earlier answers that passed, trained on again so that they are not unlearnt."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rlm_core.answers import problem_prompt
from rlm_core.config import RehearsalSection
from rlm_core.model.policy import Policy
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.training.batches import Rehearsed


def wanted(answers: int, share: float) -> int:
    """How many earlier answers must join `answers` of the iteration itself to be `share` of them all."""
    return round(answers * share / (1 - share))


def choose(corpus: Sequence[CorpusAnswer], count: int, section: RehearsalSection, seed: int) -> list[CorpusAnswer]:
    """At most `count` answers, none twice, in random order.

    `hard_share` of them are drawn from the half of the corpus whose problems have the lower measured pass rates (ties
    by lot), the others from all that is left. A half, not a limit on the rate, as that would be nearly all of the
    corpus of a weak model and nearly nothing of a strong one's.
    """
    generator = np.random.default_rng(seed)
    count = min(count, len(corpus))
    by_rate = sorted(generator.permutation(len(corpus)), key=lambda i: corpus[i].pass_rate)
    harder = by_rate[: (len(corpus) + 1) // 2]
    hard = generator.permutation(harder)[: round(section.hard_share * count)]
    left = sorted({*range(len(corpus))} - {*hard})
    others = generator.permutation(left)[: count - len(hard)]
    return [corpus[int(i)] for i in generator.permutation([*hard, *others])]


def rehearsed(policy: Policy, answer: CorpusAnswer, prompt_suffix: str) -> Rehearsed:
    """The answer as arrays: to the prompt that a rollout would get now, with the token that ends an answer."""
    prompt = policy.prompt_tokens(problem_prompt(answer.problem, prompt_suffix))
    return Rehearsed(mx.array([prompt]), mx.array([policy.answer_tokens(answer.text)]))
