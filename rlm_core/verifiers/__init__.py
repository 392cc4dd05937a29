"""What judges an answer. Value mode is in cases.py; every verifier returns why, not only whether."""

from rlm_core.verifiers.cases import Judgement, Raised, Unusable, Value, judge_cases, run_cases

__all__ = ["Judgement", "Raised", "Unusable", "Value", "judge_cases", "run_cases"]
