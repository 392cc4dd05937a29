"""The scorers of reasoning-gym's data sets, as an optional extra.

They run in the scorer's process (see scorer.py), and those that would run an answer as code are refused.
"""

from rlm_core.problems import Problem, ReasoningGym
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.text import LONGEST_CHARS


def judge(verifier: ReasoningGym, answer: Answer, _problem: Problem, bench: Bench) -> Judgement:
    """Score what stands in the answer's last `<answer>…</answer>`, or all of it when there is no such."""
    if len(answer.text) > LONGEST_CHARS:
        return Judgement.binary(f"the answer is longer than {LONGEST_CHARS} characters")
    scored = bench.scorer.score(verifier, answer.text)
    return Judgement.graded(scored.score, verifier.pass_at, scored.reason, scored.late)
