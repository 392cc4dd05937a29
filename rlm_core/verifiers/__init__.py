"""What judges an answer: one module per verifier, all of them reached through `judge`."""

from rlm_core.verifiers.cases import judge_cases, run_cases
from rlm_core.verifiers.judge import judge
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.prepare import prepare

__all__ = [
    "Answer",
    "Bench",
    "Judgement",
    "judge",
    "judge_cases",
    "prepare",
    "run_cases",
]
