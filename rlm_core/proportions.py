"""A number divided in proportion to weights."""

from collections.abc import Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def shares(count: int, weights: Mapping[KeyT, float]) -> dict[KeyT, int]:
    """So many in all, divided in proportion to the weights; what rounding leaves goes to the largest remainders."""
    exact = {key: count * weight / sum(weights.values()) for key, weight in weights.items()}
    whole = {key: int(share) for key, share in exact.items()}
    for key in sorted(exact, key=lambda key: whole[key] - exact[key])[: count - sum(whole.values())]:
        whole[key] += 1
    return whole
