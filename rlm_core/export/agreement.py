"""Whether a fused model is the policy that it was made of: by log-probabilities of greedy answers, and by an exam.

Axes: B answers, T tokens.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rlm_core.comparison import ExamPair, compare
from rlm_core.errors import StageFailed
from rlm_core.model.policy import Policy
from rlm_core.records import ExamReport, Rollout, SuiteComparison

_FLOAT32_NATS = 1e-3
_HALF_NATS = 0.05
"""A fused weight is rounded once more than a weight with an adapter beside it; 16 bits keep three digits."""
_CONFIDENCE = 0.9
_LEAST_P = 0.01
"""The same seeds draw the same answers but where two tokens are as likely, so one exam in a hundred is generous."""


def greedy_logprobs(policy: Policy, answers: Sequence[Rollout]) -> list[list[float]]:
    """The log-probability of each token of each answer, in nats, at temperature 1: B lists of T each."""
    scored = [
        policy.answer_logprobs(mx.array([answer.prompt_tokens]), mx.array([answer.tokens]), 1.0, False)[0]
        for answer in answers
    ]
    return [np.array(logprobs).tolist() for logprobs in scored]


def require_equal_logprobs(adapted: list[list[float]], fused: list[list[float]], dtype: mx.Dtype) -> float:
    """The mean difference between two policies' log-probabilities of the same answers, in nats.

    Args:
        dtype: of the weights.

    Raises:
        StageFailed: it is larger than rounding explains.
    """
    pairs = [pair for a, b in zip(adapted, fused, strict=True) for pair in zip(a, b, strict=True)]
    difference = sum(abs(a - b) for a, b in pairs) / len(pairs)
    limit = _FLOAT32_NATS if dtype == mx.float32 else _HALF_NATS
    if not difference <= limit:
        raise StageFailed(
            f"the fused model is not the policy: log-probabilities of its greedy answers differ by {difference:.2g} "
            f"nats on average, {limit:g} are allowed for rounding; nothing was exported"
        )
    return difference


def require_equal_scores(adapted: ExamReport, fused: ExamReport) -> SuiteComparison:
    """Both reports on the same exam, compared.

    Raises:
        StageFailed: their scores differ by more than sampling explains.
    """
    compared = compare(ExamPair(adapted, fused), seed=adapted.seed, confidence=_CONFIDENCE)
    assert compared.p_worse is not None
    if min(compared.p_value, compared.p_worse) < _LEAST_P:
        raise StageFailed(
            f"the fused model is not the policy: it scores {compared.candidate:.3f} on {adapted.suite}, the policy "
            f"{compared.incumbent:.3f} with the same seeds; nothing was exported"
        )
    return compared
