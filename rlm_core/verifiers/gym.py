"""The scorers of reasoning-gym's data sets, as an optional extra.

They run in the scorer's process (see scorer.py), and those that would run an answer as code are refused.
"""

from rlm_core.problems import Problem, ReasoningGym
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.text import judged_by_scorer


def judge(verifier: ReasoningGym, answer: Answer, _problem: Problem, bench: Bench) -> Judgement:
    """Score what stands in the answer's last `<answer>…</answer>`, or all of it when there is no such."""
    return judged_by_scorer(verifier, answer, bench, verifier.pass_at)
