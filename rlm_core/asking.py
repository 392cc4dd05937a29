"""How the model is asked for a problem as JSON, and its answers."""

from collections.abc import Sequence

from rlm_core.model.decoding import Request
from rlm_core.model.draws import Sampling
from rlm_core.model.policy import Policy
from rlm_core.progress import ProgressMeter
from rlm_core.seeds import derive_seed

_OPENING = '{"id": "'
"""How every answer begins, so that the model cannot but go on with a JSON object."""


def ask(policy: Policy, conversations: Sequence[list[str]], sampling: Sampling, seed: int, stage: str) -> list[str]:
    """The model's answers to conversations whose last turn asks for a problem, in their order."""
    requests = [
        Request(policy.prompt_tokens(*turns, opening=_OPENING), derive_seed(seed, i))
        for i, turns in enumerate(conversations)
    ]
    if not requests:
        return []
    completions = policy.sample(requests, sampling, len(requests), ProgressMeter(stage, len(requests)))
    return [_OPENING + policy.text(completion.tokens) for completion in completions]
