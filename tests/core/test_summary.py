"""What an iteration leaves for the ledger."""

from rlm_core.records import Rollout, Verdict
from rlm_core.summary import problem_outcomes
from tests import tiny


def rollout(problem_id: str, index: int, length: int, reason: str = "stop") -> Rollout:
    return Rollout.model_validate(
        {
            "problem_id": problem_id,
            "index": index,
            "seed": 0,
            "prompt_tokens": [1],
            "tokens": [1] * length,
            "logprobs": [-1.0] * length,
            "text": f"answer {index}",
            "finish_reason": reason,
        }
    )


def test_the_shortest_answer_that_passed_and_was_not_cut_off_is_kept() -> None:
    problems = tiny.problems(2)
    first, second = (problem.id for problem in problems)
    rollouts = [
        rollout(first, 0, 1),
        rollout(first, 1, 2, "length"),
        rollout(first, 2, 4),
        rollout(first, 3, 3, "code"),
        rollout(second, 0, 2, "length"),
    ]
    verdicts = [
        Verdict(
            rollout_id=r.id,
            problem_id=r.problem_id,
            status="failed" if r.tokens == (1,) else "passed",
            sandbox="none",
            reward=float(r.tokens != (1,)),
        )
        for r in rollouts
    ]
    kept = problem_outcomes(problems, rollouts, verdicts)
    assert [(o.rollouts, o.passed, o.passed_text) for o in kept] == [(4, 3, "answer 3"), (1, 1, None)]
