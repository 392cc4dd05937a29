"""The methods once more, as their papers write them: float64, one answer and one token at a time, slow and obvious."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """One rollout: what it was paid, and its tokens' log-probabilities under four policies."""

    reward: float
    new: list[float]
    old: list[float]
    behaviour: list[float]
    base: list[float]


Group = list[Answer]

BOUNDS = {
    "grpo": (0.8, 1.28),
    "dr_grpo": (0.8, 1.2),
    "dapo": (0.8, 1.28),
    "gspo": (1 - 3e-4, 1 + 4e-4),
    "cispo": (0.0, 5.0),
}


def loss(
    name: str,
    groups: list[Group],
    max_tokens: int,
    kl_weight: float = 0.0,
    cap: float = 2.0,
    constant: list[Group] | None = None,
) -> float:
    """The loss of one minibatch.

    Args:
        constant: the same answers with the values that a stop-gradient keeps; for finite differences.
    """
    answers = sum(len(group) for group in groups)
    tokens = sum(len(answer.new) for group in groups for answer in group)
    total = 0.0
    for group, kept in zip(groups, constant or groups, strict=True):
        for i, answer in enumerate(group):
            advantage = _advantage(name, group, i, max_tokens)
            for t in range(len(answer.new)):
                weight = min(cap, math.exp(answer.old[t] - answer.behaviour[t]))
                term = weight * _gain(name, answer, kept[i], t, advantage)
                ratio = math.exp(answer.base[t] - answer.new[t])
                term -= kl_weight * (ratio - math.log(ratio) - 1)
                total += term / _divisor(name, answer, answers, tokens, max_tokens)
    return -total


def _divisor(name: str, answer: Answer, answers: int, tokens: int, max_tokens: int) -> float:
    if name in ("grpo", "dapo", "cispo"):
        return tokens
    if name == "gspo":
        return answers * len(answer.new)
    return answers * max_tokens


def _gain(name: str, answer: Answer, kept: Answer, t: int, advantage: float) -> float:
    """What one token adds to the objective that is maximised."""
    if name in ("rloo", "reinforce"):
        return advantage * answer.new[t]
    low, high = BOUNDS[name]
    if name == "cispo":
        return min(max(math.exp(kept.new[t] - kept.old[t]), low), high) * advantage * answer.new[t]
    if name == "gspo":
        ratio = math.prod(math.exp(n - o) for n, o in zip(answer.new, answer.old, strict=True)) ** (1 / len(answer.new))
    else:
        ratio = math.exp(answer.new[t] - answer.old[t])
    if advantage > 0:
        return min(ratio, high) * advantage
    return max(ratio, low) * advantage


def _advantage(name: str, group: Group, i: int, max_tokens: int) -> float:
    rewards = [answer.reward for answer in group]
    if len(set(rewards)) == 1:
        return 0.0
    if name == "dapo":
        rewards = [answer.reward + 0.5 * _overlong(len(answer.new), max_tokens) for answer in group]
    mean = sum(rewards) / len(rewards)
    if name == "rloo":
        others = rewards[:i] + rewards[i + 1 :]
        return rewards[i] - sum(others) / len(others)
    if name in ("dr_grpo", "reinforce"):
        return rewards[i] - mean
    return (rewards[i] - mean) / math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))


def _overlong(length: int, limit: int) -> float:
    cache = round(limit / 5)
    if length <= limit - cache:
        return 0.0
    return ((limit - cache) - length) / cache
