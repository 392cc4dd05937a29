"""A tiny Llama that writes code: real MLX, real sampling, real training steps, in milliseconds.

It has learnt one thing: to answer any prompt with `def f(n):` and `return n + D`, D being 1, 2 or 3 as likely as not.
So about a third of its answers to a problem of `problems()` are right, which is what a training stage needs to have
something to learn from.
"""

import json
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx_lm.models import llama
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from rlm_core.model.tensors import flat
from rlm_core.problems import Problem

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_STEPS = 150


def answer(increment: int) -> str:
    """What the model has learnt to write."""
    return f"def f(n):\n    return n + {increment}\n"


def problem(increment: int, variant: int = 0) -> Problem:
    """A problem whose answer is `answer(increment)`."""
    inputs = [10 * variant + n for n in (0, 1, 2, 5, 9)]
    return Problem.model_validate(
        {
            "prompt": f"Write a Python function `f(n)` that adds {increment} to n, exercise {variant}.",
            "entry_point": "f",
            "signature": "f(n: int) -> int",
            "domain": "maths",
            "cases": [{"input": [n], "expected": n + increment} for n in inputs],
            "reference": answer(increment),
        }
    )


def problems(count: int, first_variant: int = 0) -> list[Problem]:
    """Different problems, each of which a third of the model's answers solve."""
    return [problem(1 + i % 3, first_variant + i) for i in range(count)]


def write_problems(path: Path, content: list[Problem]) -> str:
    """Write a problem file; its name, as a config wants it."""
    rows = [p.model_dump(mode="json", exclude={"provenance"}) for p in content]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def make_model(directory: Path, seed: int = 0) -> Path:
    """Train the tiny model and write it to `directory` as a Hugging Face style model."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(directory)
    arguments = {**CONFIG, "vocab_size": tokenizer.get_vocab_size()}
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs.from_dict(arguments))
    _teach(model, tokenizer, seed)
    mx.save_safetensors(str(directory / "model.safetensors"), flat(model.parameters()), {"format": "mlx"})
    end, start = tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|start|>")
    (directory / "config.json").write_text(json.dumps({**arguments, "eos_token_id": end, "bos_token_id": start}))
    return directory


def _tokenizer(directory: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in ("<|start|>", "<|end|>")]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([answer(1), problem(1).prompt, "user assistant"] * 20, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|start|>",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer


def _teach(model: llama.Model, tokenizer: Tokenizer, seed: int) -> None:
    """Supervised steps on prompts with random increments and answers with random, unrelated ones."""
    generator = random.Random(seed)
    optimizer = optim.Adam(learning_rate=3e-3)

    def loss_fn(module: llama.Model, tokens: mx.array, mask: mx.array) -> mx.array:
        losses = nn.losses.cross_entropy(module(tokens[:, :-1]), tokens[:, 1:])
        return mx.sum(losses * mask) / mx.sum(mask)

    step = nn.value_and_grad(model, loss_fn)
    for _ in range(_STEPS):
        rows, masks = [], []
        for _ in range(16):
            prompt = problem(generator.randint(1, 3), generator.randint(0, 99)).prompt
            ids = tokenizer.encode(f"<|start|>user\n{prompt}<|end|>\n<|start|>assistant\n").ids
            reply = tokenizer.encode(answer(generator.randint(1, 3)) + "<|end|>").ids
            rows.append(ids + reply)
            masks.append([0.0] * (len(ids) - 1) + [1.0] * len(reply))
        longest = max(map(len, rows))
        tokens = mx.array([row + [0] * (longest - len(row)) for row in rows])
        mask = mx.array([row + [0.0] * (longest - 1 - len(row)) for row in masks])
        _, gradient = step(model, tokens, mask)
        optimizer.update(model, gradient)
        mx.eval(model.parameters(), optimizer.state)
