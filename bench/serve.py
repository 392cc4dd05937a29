"""How long clients of `rlm serve` wait for an answer: on a quiet machine, and while training runs in another process.

    make bench-serve

The server is a process of its own, started as a person starts it; so is what trains: forward and backward passes of
the same base model without an end. Each client sends its next request when it has its answer. Exits 1 when clients wait
more than SLOWER times as long beside training.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import httpx
import yaml
from figures import Figure, finish, print_machine

from rlm_core.config import DEFAULT_MODEL

SLOWER = 4.0
"""Training takes all cores that it can get, so half of them are left: twice as long at best."""

_TRAINING = """
import sys
import rlm_core
import mlx.core as mx, mlx.nn as nn
from rlm_core.config import AdapterSection
from rlm_core.model.loading import load_policy
policy = load_policy(sys.argv[1])
policy.add_adapter(AdapterSection(), seed=0)
prompt, answers = mx.array([[5] * 68]), mx.array([[7] * 68] * 8)
step = nn.value_and_grad(policy.model, lambda: mx.sum(policy.answer_logprobs(prompt, answers)))
mx.eval(step())
print("training", flush=True)
while True:
    mx.eval(step())
"""


@contextmanager
def process(*words: str, until: str) -> Iterator[str]:
    """A process for the time of the block, and the line in which it said that it is ready."""
    started = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        yield next(line for line in started.stdout if until in line)
    finally:
        started.kill()
        started.communicate()


def seconds_per_answer(url: str, clients: int, answers: int, tokens: int) -> list[float]:
    """Of every answer that clients got who asked at the same time."""
    asked = {"prompt": "Write a Python function", "max_tokens": tokens}

    def ask(_number: int) -> float:
        started = time.monotonic()
        httpx.post(f"{url}/completions", json=asked, timeout=600).raise_for_status()
        return time.monotonic() - started

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, range(answers)))


def waits(name: str, seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile, which are printed, too."""
    cuts = quantiles(seconds, n=100)
    print(f"{name}: median {cuts[49]:.2f} s, 99 % within {cuts[98]:.2f} s, {len(seconds)} answers")
    return cuts[49], cuts[98]


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=DEFAULT_MODEL)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--answers", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    given = parser.parse_args()
    load = (given.clients, given.answers, given.tokens)
    with TemporaryDirectory() as directory:
        config = Path(directory, "config.yaml")
        config.write_text(yaml.safe_dump({"project": f"{directory}/project", "model": {"base": given.base}}))
        serve = ("-m", "rlm_cli.main", "serve", "--config", str(config), "--port", "0")
        with process(*serve, until="serving ") as line:
            url = line.partition(" at ")[2].partition(";")[0]
            print_machine()
            seconds_per_answer(url, given.clients, given.clients, given.tokens)
            idle = waits("idle", seconds_per_answer(url, *load))
            with process("-c", _TRAINING, given.base, until="training"):
                beside = waits("beside training", seconds_per_answer(url, *load))
    finish(
        [
            Figure(f"beside training, times the idle {what}", busy / quiet, SLOWER, "at most")
            for what, quiet, busy in zip(("median", "99th percentile"), idle, beside, strict=True)
        ]
    )


if __name__ == "__main__":
    main()
