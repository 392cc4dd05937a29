"""A problem whose argument itself passes half of its cases, and answers to it."""

from rlm_core.problems import Problem
from rlm_core.records import Rollout

SQUARE = Problem.model_validate(
    {
        "prompt": "Square n.",
        "entry_point": "square",
        "cases": [{"input": [n], "expected": n * n} for n in (0, 1, 2, 3)],
    }
)
RIGHT = "```python\ndef square(n):\n    return n * n\n```"
THREE_OF_FOUR = "```python\ndef square(n):\n    return n * n if n < 3 else 0\n```"


def answer(text: str, index: int = 0) -> Rollout:
    return Rollout(
        problem_id=SQUARE.id,
        index=index,
        seed=index,
        prompt_tokens=(1,),
        tokens=(2,),
        logprobs=(-1.0,),
        text=text,
        finish_reason="stop",
    )
