"""Iterations in which the model samples nothing and no code runs: what is left is all that surrounds that work."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from rlm_core.model.decoding import Completion, Request
from rlm_core.model.language import Language
from rlm_core.problems import Problem
from rlm_core.records import Rollout, Verdict
from rlm_core.sources import read_problems
from tests import tiny

SHARD_PROBLEMS = 4
"""The config's default."""
_FEW = 10
"""Problems of an exam."""


def put_in_place() -> None:
    """Let answers and verdicts be made up, in this process, from now on."""
    patch("rlm_core.rollout.answers_from_servers", _answers).start()
    patch("rlm_core.verify.judge_rollouts", _verdicts).start()
    patch("rlm_core.exams.sit.judge_rollouts", _verdicts).start()


def _answers(
    _learner: Any, language: Language, requests: Sequence[Request], _section: Any, on_tokens: Callable[[int, int], None]
) -> list[Completion]:
    tokens = language.tokenizer.encode(tiny.answer(2), add_special_tokens=False)
    made = []
    for _ in requests:
        on_tokens(len(tokens), 1)
        made.append(Completion(list(tokens), [-1.0] * len(tokens), "stop"))
    return made


def _verdicts(
    rollouts: Sequence[Rollout], _problems: Mapping[str, Problem], _section: Any, stage: str = "", part: str = ""
) -> list[Verdict]:
    """Each second answer is right: all groups teach, and no candidate is better than another."""
    return [
        Verdict(
            rollout_id=rollout.id,
            problem_id=rollout.problem_id,
            status="passed" if rollout.index % 2 else "failed",
            sandbox=stage and part and "none",
            score=float(rollout.index % 2),
            reward=float(rollout.index % 2),
        )
        for rollout in rollouts
    ]


def problems(count: int, seed: int) -> list[Problem]:
    """Different problems whose requests are made of the bank's sentences, so that they have as many words in common."""
    bank = [problem.prompt for part in ("train", "benchmark") for problem in read_problems(f"bank:{part}")]
    sentences = sorted({sentence for prompt in bank for sentence in re.split(r"(?<=\.)\s+", prompt)})
    draw = random.Random(seed)
    made = []
    for number in range(count):
        like = tiny.problem(1 + number % 3, seed * 1_000_000 + number)
        words = " ".join(draw.sample(sentences, 3))[:1_000]
        made.append(like.model_copy(update={"prompt": f"{words} Exercise {seed} {number}."}))
    return made


def write_config(directory: Path, count: int) -> Path:
    """A project that trains on so many problems of its bank, with the tiny model of the tests."""
    directory.mkdir(parents=True)
    base = directory.parent / "model"
    if not base.is_dir():
        tiny.make_model(base)
    suites = {
        name: tiny.write_problems(directory / f"{name}.jsonl", [tiny.problem(2, first + i) for i in range(_FEW)])
        for name, first in (("benchmark", 20), ("holdout", 40))
    }
    content = {
        "project": str(directory / "project"),
        "model": {"base": str(base)},
        "generate": {
            "problems": count,
            "sources": {"bank": 1},
            "bank": tiny.write_problems(directory / "bank.jsonl", problems(count, 1)),
            "prove_bank": False,
        },
        "mutate": {"of_solutions": 0, "parents": 0},
        "rollout": {
            "engine": "server",
            "servers": ["http://nobody:1"],
            "group_size": 2,
            "max_tokens": 20,
            "shard_problems": SHARD_PROBLEMS,
        },
        "train": {"minibatch": 64, "rescore_above": 100.0, "adapter": {"rank": 2, "modules": ["mlp.down_proj"]}},
        "evaluate": {**suites, "samples": 1, "max_tokens": 8},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return path
