"""Rehearsal: what may be chosen, what is chosen, and what it does to the training."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core import progress
from rlm_core.config import Config, RehearsalSection, TrainSection
from rlm_core.errors import Interrupted
from rlm_core.files import read_jsonl
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.model.tensors import flat
from rlm_core.records import TrainReport
from rlm_core.state.corpus import CorpusAnswer
from rlm_core.state.corpus_file import write_corpus
from rlm_core.state.run import Run
from rlm_core.train import train
from rlm_core.training.batches import Experience, Rehearsed, Sample, micro_batch, minibatches, with_rehearsed
from rlm_core.training.losses import Divisors
from rlm_core.training.methods import METHODS
from rlm_core.training.rehearsal import choose, rehearsed, wanted
from rlm_core.training.trainer import Trainer, policy_loss
from tests import tiny
from tests.core.conftest import ROLLOUT, Judged
from tests.samples.training import LORA, SECTION

HALF = RehearsalSection(share=0.5)


def answer(name: int, pass_rate: float = 0.5, increment: int = 2, iteration: int = 1) -> CorpusAnswer:
    problem = tiny.problem(increment, 100 + name)
    return CorpusAnswer(
        problem=problem,
        rollout_id=str(name),
        iteration=iteration,
        text=tiny.answer(increment),
        pass_rate=pass_rate,
        usefulness=0.2,
    )


def train_here(judged: Judged, model: Path, directory: Path, corpus: list[CorpusAnswer], **changes: Any) -> TrainReport:
    section = SECTION.model_copy(update={"rehearsal": HALF, **changes})
    return train(str(model), None, judged.rollouts, judged.verdicts, section, ROLLOUT, 3, directory, {}, corpus)


def sha256(report: TrainReport) -> str:
    assert report.candidate is not None
    return report.candidate.sha256


def steps(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------------------------------------------------ choosing


@pytest.mark.parametrize(
    ("answers", "share", "expected"), [(36, 0.0, 0), (36, 0.25, 12), (36, 0.5, 36), (10, 0.1, 1), (4, 0.1, 0)]
)
def test_the_share_is_of_all_answers_that_are_trained_on(answers: int, share: float, expected: int) -> None:
    assert wanted(answers, share) == expected


def test_the_choice_is_the_seeds_and_takes_none_twice() -> None:
    corpus = [answer(i) for i in range(20)]
    chosen = choose(corpus, 8, HALF, seed=1)
    assert chosen == choose(corpus, 8, HALF, seed=1)
    assert chosen != choose(corpus, 8, HALF, seed=2)
    assert len({a.rollout_id for a in chosen}) == 8
    assert sorted(a.rollout_id for a in choose(corpus, 99, HALF, seed=1)) == sorted(a.rollout_id for a in corpus)
    assert choose([], 8, HALF, seed=1) == []


def test_without_a_hard_share_every_answer_is_chosen_as_often_as_any_other() -> None:
    corpus = [answer(i, pass_rate=i / 10) for i in range(10)]
    section = RehearsalSection(share=0.5, hard_share=0)
    seen = Counter(a.rollout_id for seed in range(1_000) for a in choose(corpus, 3, section, seed))
    # 300 expected; the deviation of a binomial with n = 1000 and p = 0.3 is 14.5.
    assert all(abs(seen[a.rollout_id] - 300) < 5 * 14.5 for a in corpus), seen


def test_the_hard_share_comes_from_the_lower_half_of_measured_pass_rates() -> None:
    """Two of four are drawn from the five hard ones, two from all eight that are left, three of which are hard."""
    corpus = [answer(i, pass_rate=i / 10) for i in range(10)]
    counts = [sum(a.pass_rate < 0.5 for a in choose(corpus, 4, HALF, seed)) for seed in range(1_000)]
    assert min(counts) == 2
    assert np.mean(counts) == pytest.approx(2 + 2 * 3 / 8, abs=0.1)
    only_hard = choose(corpus, 5, RehearsalSection(share=0.5, hard_share=1), seed=0)
    assert {a.pass_rate for a in only_hard} == {0.0, 0.1, 0.2, 0.3, 0.4}


def test_hard_is_a_low_pass_rate_and_not_a_long_prompt() -> None:
    hard, easy = answer(1, pass_rate=0.1), answer(2, pass_rate=0.9)
    longer = easy.problem.model_copy(update={"prompt": easy.problem.prompt + " Take your time." * 20})
    corpus = [easy.model_copy(update={"problem": longer}), hard]
    section = RehearsalSection(share=0.5, hard_share=1)
    assert {choose(corpus, 1, section, seed)[0].rollout_id for seed in range(50)} == {"1"}


def test_hard_answers_are_not_all_at_the_beginning() -> None:
    corpus = [answer(i, pass_rate=i / 10) for i in range(10)]
    first = Counter(choose(corpus, 10, HALF, seed)[0].pass_rate < 0.5 for seed in range(200))
    assert 60 < first[True] < 140


def test_a_problem_that_is_in_a_suite_or_nearly_cannot_be_chosen(tmp_path: Path) -> None:
    suites = {
        "benchmark": tiny.write_problems(tmp_path / "b.jsonl", [answer(1).problem]),
        "holdout": tiny.write_problems(tmp_path / "h.jsonl", [answer(2).problem]),
    }
    other = answer(3).problem.model_copy(update={"prompt": "Write a Python function `f(n)` that doubles a number."})
    corpus = [answer(1), answer(2), answer(4), answer(3).model_copy(update={"problem": other})]

    def kept(max_similarity: float) -> list[str]:
        config = Config.parse({"evaluate": suites, "filter": {"max_similarity": max_similarity}})
        file = write_corpus(Run(tmp_path), corpus, config)
        return [a.rollout_id for a in read_jsonl(Path(file.path), CorpusAnswer)]

    assert kept(1.0) == ["4", "3"]
    assert kept(0.5) == ["3"]


# ----------------------------------------------------------------------------------------------------- as token ids


def test_an_answer_becomes_the_tokens_that_a_rollout_with_this_text_has(policy: Policy, judged: Judged) -> None:
    by_id = {problem.id: problem for problem in judged.problems}
    ended = [rollout for rollout in judged.rollouts if rollout.finish_reason == "stop"]
    assert ended
    for rollout in ended:
        old = CorpusAnswer(
            problem=by_id[rollout.problem_id],
            rollout_id="r",
            iteration=1,
            text=rollout.text,
            pass_rate=0.5,
            usefulness=0.2,
        )
        batch = rehearsed(policy, old, ROLLOUT.prompt_suffix)
        assert batch.prompt.tolist() == [list(rollout.prompt_tokens)]
        [tokens] = np.array(batch.answer).tolist()
        assert policy.text(tokens) == rollout.text
        assert tokens[-1] == rollout.tokens[-1]


def test_the_end_token_is_that_of_the_chat_template(policy: Policy) -> None:
    tokenizer = policy.tokenizer
    start, end = tokenizer.convert_tokens_to_ids(["<|start|>", "<|end|>"])
    tokenizer.eos_token_ids = {start, end}
    assert policy.answer_tokens("x")[-1] == end
    other = load_policy(policy.base)
    other.tokenizer.eos_token_ids = {start, end}
    other.tokenizer._tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<|start|>{% endfor %}"
    assert other.answer_tokens("x")[-1] == start


# ----------------------------------------------------------------------------------------------------------- training


def test_minibatches_get_rehearsed_answers_in_proportion_to_their_rollouts(judged: Judged) -> None:
    groups = [[Sample(r, v, 1.0) for r, v in zip(judged.rollouts, judged.verdicts, strict=True)][:6]] * 5
    fresh = minibatches(groups, TrainSection(minibatch=12, micro_batch=3), seed=0)
    old = [Rehearsed(mx.array([[1]]), mx.array([[n]])) for n in range(10)]
    mixed = with_rehearsed(fresh, old)
    assert [sum(isinstance(batch, Rehearsed) for batch in step) for step in mixed] == [4, 4, 2]  # of 12, 12, 6
    assert [batch for step in mixed for batch in step if isinstance(batch, Rehearsed)] == old
    assert [[batch for batch in step if batch not in old] for step in mixed] == fresh
    assert with_rehearsed(fresh, []) == fresh


@pytest.mark.parametrize("name", METHODS)
def test_a_rehearsed_answer_is_one_more_answer_with_advantage_1(policy: Policy, judged: Judged, name: str) -> None:
    """In the first step, where ratios are 1 and no method clips: the gradients are the same."""
    policy.add_adapter(LORA, seed=1)
    weights = policy.trainable().items()
    mx.random.seed(0)
    policy.model.load_weights([(key, 0.1 * mx.random.normal(value.shape)) for key, value in weights], strict=False)
    rollout, verdict = judged.rollouts[0], judged.verdicts[0]
    loss_fn = policy_loss(TrainSection.parse({"method": name}), 1.0)
    trainer = Trainer(policy, SECTION, Experience([], 1.0, 20), Path("unused"), "unused")
    [[fresh]] = trainer.scored([[micro_batch([Sample(rollout, verdict, 1.0)])]])
    assert fresh.old_logprobs is not None
    fresh = replace(fresh, behaviour_logprobs=fresh.old_logprobs)  # so that no importance weight comes into it
    old = Rehearsed(mx.array([rollout.prompt_tokens]), mx.array([rollout.tokens]))
    divisors = Divisors(40, 3, 20)
    _, expected, _ = trainer.accumulate([fresh], loss_fn, divisors)
    _, gradient, figures = trainer.accumulate([old], loss_fn, divisors)
    for (key, a), (_, b) in zip(flat(gradient).items(), flat(expected).items(), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-6), key
    assert any(np.abs(np.array(value)).max() > 1e-4 for value in flat(gradient).values())
    assert figures == {"rehearsal_loss": pytest.approx(-np.array(fresh.behaviour_logprobs).sum(), rel=1e-4)}
    assert trainer.divisors([fresh, old]) == Divisors(2 * len(rollout.tokens), 2, 20)


def test_rehearsal_lowers_the_loss_on_what_is_rehearsed(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    corpus = [answer(i) for i in range(12)]

    def loss(report: TrainReport) -> float:
        policy = load_policy(str(tiny_model), report.candidate)
        batches = [rehearsed(policy, a, ROLLOUT.prompt_suffix) for a in corpus]
        return float(np.mean([-policy.answer_logprobs(b.prompt, b.answer).sum().item() for b in batches]))

    with_it = train_here(judged, tiny_model, tmp_path / "a", corpus, epochs=2)
    without = train_here(judged, tiny_model, tmp_path / "b", corpus, epochs=2, rehearsal=RehearsalSection())
    assert (with_it.rehearsed, without.rehearsed) == (12, 0)
    assert loss(with_it) < loss(without) - 0.05, (loss(with_it), loss(without))


def test_a_share_of_0_trains_as_if_there_were_no_corpus(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    off = {"rehearsal": RehearsalSection()}
    straight = train_here(judged, tiny_model, tmp_path / "a", [], **off)
    beside = train_here(judged, tiny_model, tmp_path / "b", [answer(i) for i in range(5)], **off)
    rehearsing = train_here(judged, tiny_model, tmp_path / "c", [answer(i) for i in range(5)])
    assert sha256(straight) == sha256(beside) != sha256(rehearsing)
    assert not (tmp_path / "b" / "rehearsal.jsonl").exists()


def test_training_that_rehearses_is_continued_after_any_step_to_the_same_adapter(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    corpus = [answer(i, pass_rate=i / 20) for i in range(20)]
    straight = train_here(judged, tiny_model, tmp_path / "straight", corpus)
    assert straight.steps >= 3
    assert all(step["rehearsed"] for step in steps(tmp_path / "straight"))
    for last in range(1, straight.steps + 1):

        def stop(step: progress.Progress, last: int = last) -> None:
            if step.done == last:
                raise Interrupted("now")

        directory = tmp_path / str(last)
        with pytest.raises(Interrupted), progress.listening(stop):
            train_here(judged, tiny_model, directory, corpus)
        chosen = (directory / "rehearsal.jsonl").read_bytes()
        assert sha256(train_here(judged, tiny_model, directory, corpus)) == sha256(straight)
        assert (directory / "rehearsal.jsonl").read_bytes() == chosen


def test_a_checkpoint_of_training_that_rehearsed_something_else_is_not_continued(
    judged: Judged, tiny_model: Path, tmp_path: Path
) -> None:
    def stop(step: progress.Progress) -> None:
        if step.done == 1:
            raise Interrupted("now")

    with pytest.raises(Interrupted), progress.listening(stop):
        train_here(judged, tiny_model, tmp_path / "mixed", [answer(i, increment=1) for i in range(6)])
    mixed = train_here(judged, tiny_model, tmp_path / "mixed", [answer(i, increment=3) for i in range(6)])
    straight = train_here(judged, tiny_model, tmp_path / "straight", [answer(i, increment=3) for i in range(6)])
    assert sha256(mixed) == sha256(straight)


def test_metrics_keep_rollouts_and_rehearsed_answers_apart(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    corpus = [answer(i) for i in range(5)]
    report = train_here(judged, tiny_model, tmp_path / "with", corpus, minibatch=1_000)
    train_here(judged, tiny_model, tmp_path / "without", [], minibatch=1_000)
    [with_it], [without] = steps(tmp_path / "with"), steps(tmp_path / "without")
    policy = load_policy(str(tiny_model))
    batches = [rehearsed(policy, a, ROLLOUT.prompt_suffix) for a in corpus]
    losses = np.concatenate([-np.array(policy.answer_logprobs(b.prompt, b.answer))[0] for b in batches])
    assert (with_it["rehearsed"], with_it["rehearsed_tokens"]) == (5, len(losses))
    assert with_it["rehearsal_loss"] == pytest.approx(losses.mean(), rel=1e-4)
    assert (without["rehearsed"], without["rehearsed_tokens"], without["rehearsal_loss"]) == (0, 0, None)
    different = {"loss", "grad_norm", "rehearsed", "rehearsed_tokens", "rehearsal_loss"}
    different |= {"duration_s", "tokens_per_s", "peak_memory_gb"}
    for name in without.keys() - different:
        assert with_it[name] == pytest.approx(without[name]), name
    both = without["loss"] * without["tokens"] + losses.sum()
    assert with_it["loss"] == pytest.approx(both / (without["tokens"] + len(losses)), abs=1e-5)
    assert report.tokens == without["tokens"]


def test_nothing_is_rehearsed_when_there_is_nothing_to_learn(judged: Judged, tiny_model: Path, tmp_path: Path) -> None:
    equal = Judged(judged.problems, judged.rollouts, [v.model_copy(update={"reward": 0.5}) for v in judged.verdicts])
    report = train_here(equal, tiny_model, tmp_path, [answer(1)])
    assert (report.candidate, report.rehearsed) == (None, 0)
