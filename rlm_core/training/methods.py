"""The training methods, each put together from `advantages` and `losses`.

What every method has besides: a k3 divergence from the policy without its adapter when `kl_weight` is set, truncated
importance weights between sampler and trainer, and groups without a spread of rewards left out before training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rlm_core.training.advantages import centred, group_normalised, have_spread, leave_one_out, overlong_penalties
from rlm_core.training.losses import (
    Aggregate,
    ClipRange,
    TokenLosses,
    clipped_surrogate,
    clipped_weight,
    constant_length,
    log_probability,
    sequence_mean,
    sequence_surrogate,
    token_mean,
)

MethodName = Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce"]

Advantages = Callable[[Sequence[float]], np.ndarray]
"""From a group's rewards to its advantages, both [G]."""


@dataclass(frozen=True)
class Overlong:
    """How answers that come near the limit on tokens are punished; see `advantages.overlong_penalties`."""

    buffer: float
    """Share of the limit, at its end, in which the penalty grows."""
    penalty: float
    """What an answer loses that reaches the limit."""


@dataclass(frozen=True)
class Method:
    """What a method is made of."""

    advantages: Advantages
    token_losses: TokenLosses
    aggregate: Aggregate
    clip: ClipRange | None = None
    """None: the method clips nothing."""
    overlong: Overlong | None = None
    """None: the method has no penalty for length."""

    def group_advantages(self, rewards_G: Sequence[float], lengths_G: Sequence[int], max_tokens: int) -> np.ndarray:
        """The advantages of a group, float64 [G].

        Dynamic sampling (DAPO, equation 11): a group whose rewards are all equal gets zeros and is dropped before
        training. That is judged before length is punished, as otherwise a group of wrong answers would teach only to
        be short. DAPO then samples further problems until the batch is full; here the iteration's problems are what
        there is, and training takes fewer steps.
        """
        if self.overlong is None or not have_spread(rewards_G):
            return self.advantages(rewards_G)
        buffer = max(1, round(self.overlong.buffer * max_tokens))
        punished = np.asarray(rewards_G) + self.overlong.penalty * overlong_penalties(lengths_G, max_tokens, buffer)
        return self.advantages(punished.tolist())

    def adjusted(self, **given: float) -> "Method":
        """The method with a user's settings in place of its own, each named part_field, such as `clip_low`.

        Raises:
            ValueError: the method has no such part, so the setting would have no effect.
        """
        method = self
        for setting, value in given.items():
            name, field = setting.split("_")
            part = getattr(method, name)
            if part is None:
                raise ValueError(f"this method does not use {setting}; take it out or choose another method")
            changes: dict[str, Any] = {name: replace(part, **{field: value})}
            method = replace(method, **changes)
        return method


METHODS: dict[MethodName, Method] = {
    "grpo": Method(group_normalised, clipped_surrogate, token_mean, ClipRange(0.2, 0.28)),
    "dr_grpo": Method(centred, clipped_surrogate, constant_length, ClipRange(0.2, 0.2)),
    "dapo": Method(group_normalised, clipped_surrogate, token_mean, ClipRange(0.2, 0.28), Overlong(0.2, 0.5)),
    "gspo": Method(group_normalised, sequence_surrogate, sequence_mean, ClipRange(3e-4, 4e-4)),
    "cispo": Method(group_normalised, clipped_weight, token_mean, ClipRange(1.0, 4.0)),
    "rloo": Method(leave_one_out, log_probability, constant_length),
    "reinforce": Method(centred, log_probability, constant_length),
}
"""The methods by name; docs/training.md says where the numbers come from."""
