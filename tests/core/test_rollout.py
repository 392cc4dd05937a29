"""The rollout stage: a group of answers to each problem of a shard, with all that training needs to know of them."""

from pathlib import Path

from rlm_core import rollout
from rlm_core.config import RolloutSection
from rlm_core.files import read_jsonl, write_jsonl
from rlm_core.model.policy import Policy
from rlm_core.records import FileRef, PolicyRef, Rollout
from rlm_core.rollout import sample_rollouts
from rlm_core.rounds import Shard
from tests import tiny

SECTION = RolloutSection(group_size=3, max_tokens=8)


def test_rollouts_keep_prompt_tokens_seed_and_group(policy: Policy) -> None:
    """Token ids, log-probabilities, seed, chat template."""
    problems = tiny.problems(2)
    rollouts = sample_rollouts(policy, problems, SECTION, seed=1)
    assert [(r.problem_id, r.index) for r in rollouts] == [(p.id, i) for p in problems for i in range(3)]
    assert len({r.seed for r in rollouts}) == 6
    assert all(len(r.tokens) == len(r.logprobs) <= 8 for r in rollouts)
    assert policy.tokenizer.decode(list(rollouts[0].prompt_tokens)).startswith("<|start|>user\nWrite a Python function")


def test_a_shards_answers_are_those_that_all_problems_together_would_get(tiny_model: Path, tmp_path: Path) -> None:
    problems = FileRef.of(write_jsonl(tmp_path / "problems.jsonl", tiny.problems(4)))
    learner = PolicyRef(base=str(tiny_model), fingerprint="f")

    def answers(first: int, count: int) -> list[Rollout]:
        shard = Shard(number=first, source="problems", first=first, problems=count, of=4)
        made = rollout.run(tmp_path, learner, problems, shard, SECTION, seed=5)
        found = list(read_jsonl(Path(made.files["rollouts"].path), Rollout))
        assert made.figures["truncated"] == sum(each.truncated for each in found)
        return found

    whole, parts = answers(0, 4), [*answers(1, 2), *answers(3, 1)]
    assert [(each.problem_id, each.seed, each.tokens) for each in parts] == [
        (each.problem_id, each.seed, each.tokens) for each in whole[3:]
    ]
