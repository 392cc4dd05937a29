"""How fast groups of answers are sampled, against mlx-lm's batched generation and one answer at a time.

    make bench-rollout

All sides have the same model, prompts, group size and number of tokens: nobody stops at an end token, all draw at
temperature 1 and keeps the log-probability of each token. mlx-lm's `batch_generate` is run at several batch sizes, and
its best counts. Sides take turns; medians of several rounds are compared. Exits 1 when a goal is missed.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from figures import Figure, finish, print_machine

import rlm_core  # noqa: F401  before MLX: it chooses the BLAS

import mlx.core as mx  # isort: skip
from mlx_lm.generate import batch_generate, stream_generate
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from rlm_core.answers import problem_prompt
from rlm_core.config import DEFAULT_MODEL, RolloutSection
from rlm_core.model.decoding import Decoder, Request
from rlm_core.model.draws import Sampling
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.sources import read_problems

PROBLEMS, GROUP, TOKENS = 8, 8, 48
BATCH_SIZES = (16, 32, 64)
ONE_AT_A_TIME = 4
"""Answers of the slowest side; it is measured in tokens a second like the others."""


def prompts(policy: Policy) -> list[tuple[int, ...]]:
    """The prompts of all rollouts, group by group."""
    problems = read_problems("bank:train[starter,easy]")[:PROBLEMS]
    suffix = RolloutSection().prompt_suffix
    return [policy.prompt_tokens(problem_prompt(problem, suffix)) for problem in problems for _ in range(GROUP)]


def ours(policy: Policy, asked: list[tuple[int, ...]]) -> int:
    """Tokens sampled by this project's decoder."""
    decoder = Decoder(
        policy.model,
        lambda: make_prompt_cache(policy.model),
        Sampling(1.0, TOKENS),
        RolloutSection().batch_size,
        lambda _request, _tokens: None,
    )
    requests = [Request(prompt, seed) for seed, prompt in enumerate(asked)]
    return sum(len(answer.logprobs) for answer in decoder.run(requests, lambda _tokens, _ended: None))


class _NeverEnds:
    """The tokenizer without its end tokens."""

    eos_token_ids: tuple[int, ...] = ()

    def decode(self, _tokens: list[int]) -> str:
        return ""


def batched(policy: Policy, asked: list[tuple[int, ...]], batch_size: int) -> int:
    """Tokens sampled by mlx-lm's batched generation."""
    answers = batch_generate(
        policy.model,
        _NeverEnds(),
        [list(prompt) for prompt in asked],
        max_tokens=TOKENS,
        return_logprobs=True,
        sampler=make_sampler(temp=1.0),
        completion_batch_size=batch_size,
        prefill_batch_size=batch_size,
    )
    assert answers.logprobs is not None
    return sum(map(len, answers.logprobs))


def one_at_a_time(policy: Policy, asked: list[tuple[int, ...]]) -> int:
    """Tokens sampled by mlx-lm's generation of single answers."""
    tokens = 0
    for prompt in asked[:: len(asked) // ONE_AT_A_TIME][:ONE_AT_A_TIME]:
        steps = stream_generate(
            policy.model, policy.tokenizer, list(prompt), max_tokens=TOKENS, sampler=make_sampler(temp=1.0)
        )
        tokens += sum(bool(step.logprobs[step.token] <= 0) for step in steps)
    return tokens


def rate(sample: Callable[[], int]) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    tokens = sample()
    return tokens / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print_machine()
    policy = load_policy(DEFAULT_MODEL)
    policy.model.eval()
    asked = prompts(policy)
    print(f"{PROBLEMS} prompts of {min(map(len, asked))} to {max(map(len, asked))} tokens, {GROUP} answers of {TOKENS}")
    sides: dict[str, Callable[[], int]] = {"this project": lambda: ours(policy, asked)}
    for size in BATCH_SIZES:
        sides[f"batch_generate, batches of {size}"] = partial(batched, policy, asked, size)
    sides["one at a time"] = lambda: one_at_a_time(policy, asked)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, sample in sides.items():
            mx.clear_cache()
            rates[name].append(rate(sample))
    middle = {name: median(values) for name, values in rates.items()}
    for name, value in middle.items():
        print(f"{name}: {value:.1f} tokens/s")
    best = max(value for name, value in middle.items() if name.startswith("batch_generate"))
    finish(
        [
            Figure("times batch_generate at its best batch size", middle["this project"] / best, 1.4),
            Figure("times one answer at a time", middle["this project"] / middle["one at a time"], 10),
        ]
    )


if __name__ == "__main__":
    main()
