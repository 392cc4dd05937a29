"""How fast and how large a training step is, against mlx-lm's supervised step and mlx-lm-lora's GRPO step.

    make bench-train

All sides train the same adapter of the same model on the same sequences: groups of 8 answers, prompts as long as
answers; the others a group in each step, this project its default of 32 answers, a group in memory at a time. Each
side runs in a process of its own, in turns, so that its largest resident size is its own; what counts is trained tokens
(those of answers) a second. For this project that is everything the train stage does with a step's groups: comparing
the sampler's log-probabilities with the trainer's, the step, its metrics and the checkpoint. The others take the step
only. Exits 1 when a goal is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from figures import Figure, finish, print_machine

GROUP, PROMPT, ANSWER = 8, 68, 68
GROUPS = 4
"""In a step of this project."""
STEPS = 4
"""Of which the first is not counted."""
SIDES = ("this project", "mlx-lm supervised", "mlx-lm-lora GRPO")


def policy_and_sequences(our_layers: bool = False) -> tuple[Any, list[int], list[list[int]], list[float]]:
    """The policy with a fresh adapter, a prompt, its answers, and their advantages.

    Args:
        our_layers: whether MLPs and attention are computed by this project; the others use mlx-lm's as they are.
    """
    import numpy as np

    from rlm_core.config import DEFAULT_MODEL, TrainSection
    from rlm_core.model import loading

    if not our_layers:
        for layers in ("use_fast_swiglu", "use_shared_attention"):
            setattr(loading, layers, lambda _model: 0)
    policy = loading.load_policy(DEFAULT_MODEL)
    policy.add_adapter(TrainSection().adapter, seed=1)
    generator = np.random.default_rng(0)
    tokens = generator.integers(100, 40_000, PROMPT + GROUP * ANSWER).tolist()
    answers = [tokens[PROMPT + row * ANSWER :][:ANSWER] for row in range(GROUP)]
    return policy, tokens[:PROMPT], answers, [1.0 if row % 2 else -1.0 for row in range(GROUP)]


def step_of_this_project() -> Callable[[], None]:
    import mlx.core as mx

    from rlm_core.config import TrainSection
    from rlm_core.records import Rollout, Verdict
    from rlm_core.training.batches import Experience, Sample, minibatches
    from rlm_core.training.trainer import Trainer

    policy, prompt, answers, advantages = policy_and_sequences(our_layers=True)
    section = TrainSection(minibatch=GROUPS * GROUP, micro_batch=GROUP)
    logprobs = policy.answer_logprobs(mx.array([prompt]), mx.array(answers), differentiable=False).tolist()
    group = []
    for index, (answer, advantage) in enumerate(zip(answers, advantages, strict=True)):
        rollout = Rollout(
            problem_id="p",
            index=index,
            seed=index,
            prompt_tokens=tuple(prompt),
            tokens=tuple(answer),
            logprobs=tuple(logprobs[index]),
            text="",
            finish_reason="length",
        )
        verdict = Verdict(rollout_id=rollout.id, problem_id="p", status="failed", sandbox="none")
        group.append(Sample(rollout, verdict, advantage))
    directory, steps = Path(tempfile.mkdtemp()), minibatches([group] * GROUPS, section, seed=0)

    def step() -> None:
        # The sampler has the weights that training starts from, and here each step is a training.
        policy.model.load_weights(untrained, strict=False)
        Trainer(policy, section, Experience([group] * GROUPS, 1.0, ANSWER), directory, str(time.monotonic())).run(steps)

    untrained = list(policy.trainable().items())
    return step


def step_of_mlx_lm() -> Callable[[], None]:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.tuner.trainer import default_loss

    policy, prompt, answers, _ = policy_and_sequences()
    batch = mx.array([[*prompt, *answer] for answer in answers])
    lengths = mx.array([[PROMPT, PROMPT + ANSWER - 1]] * GROUP)
    value_and_grad = nn.value_and_grad(policy.model, default_loss)
    return _stepper(policy, lambda: value_and_grad(policy.model, batch, lengths))


def step_of_mlx_lm_lora() -> Callable[[], None]:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm_lora.trainer.grpo_trainer import grpo_loss

    policy, prompt, answers, advantages = policy_and_sequences()
    given = {
        "batch": [[prompt]],
        "completions": [mx.array(answer) for answer in answers],
        "batch_indices": [0] * GROUP,
        "advantages": mx.array(advantages),
        "beta": 0.0,
        "max_tokens": ANSWER,
        "grpo_loss_type": "bnpo",
    }
    value_and_grad = nn.value_and_grad(policy.model, lambda model: grpo_loss(model, None, **given))
    return _stepper(policy, lambda: value_and_grad(policy.model))


def _stepper(policy: Any, compute: Callable[[], tuple[Any, Any]]) -> Callable[[], None]:
    import mlx.core as mx
    import mlx.optimizers as optim

    optimizer = optim.AdamW(learning_rate=1e-4, betas=[0.9, 0.99], weight_decay=0.0)

    def step() -> None:
        values, gradient = compute()
        gradient, _ = optim.clip_grad_norm(gradient, 1.0)
        optimizer.update(policy.model, gradient)
        mx.eval(values, policy.model.trainable_parameters(), optimizer.state)

    return step


def run_side(side: str) -> None:
    """Take steps, and print tokens a second and the largest resident size in MB as JSON."""
    import rlm_core  # noqa: F401  before MLX: it chooses the BLAS

    makers = dict(zip(SIDES, (step_of_this_project, step_of_mlx_lm, step_of_mlx_lm_lora), strict=True))
    step = makers[side]()
    seconds = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    groups = GROUPS if side == SIDES[0] else 1
    print(json.dumps([groups * GROUP * ANSWER / median(seconds[1:]), rss_mb]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help="run one side only, and print its numbers as JSON")
    arguments = parser.parse_args()
    if arguments.side:
        run_side(arguments.side)
        return
    print_machine()
    print(f"groups of {GROUP}, prompts of {PROMPT} tokens, answers of {ANSWER}, LoRA on all layers, float32")
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    sizes: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(arguments.rounds):
        for side in SIDES:
            done = subprocess.run(
                [sys.executable, __file__, "--side", side], capture_output=True, text=True, check=True
            )
            rate, size = json.loads(done.stdout.splitlines()[-1])
            rates[side].append(rate)
            sizes[side].append(size)
    rate_of = {side: median(values) for side, values in rates.items()}
    size_of = {side: median(values) for side, values in sizes.items()}
    for side in SIDES:
        print(f"{side}: {rate_of[side]:.1f} trained tokens/s, {size_of[side]:.0f} MB")
    project, supervised, grpo = SIDES
    smaller = min(size_of[supervised], size_of[grpo])
    finish(
        [
            Figure("speed, times mlx-lm's supervised step", rate_of[project] / rate_of[supervised], 1.7),
            Figure("speed, times mlx-lm-lora's GRPO step", rate_of[project] / rate_of[grpo], 1.5),
            Figure("memory, share of the smaller of both", size_of[project] / smaller, 0.7, "at most"),
        ]
    )


if __name__ == "__main__":
    main()
