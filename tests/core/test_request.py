"""The words of a request: what is written is read again, and nobody else's words are taken for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.request import AskedFunction, parsed, request
from rlm_core.sources import read_problems


@given(st.text().filter(lambda text: "`" not in text), st.text())
def test_a_request_is_read_as_it_was_written(signature: str, what: str) -> None:
    assert parsed(request(signature, what)) == AskedFunction(signature, what)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Return the numbers that are even.",
        "Write a Python function add(a, b) that adds them.",
        "Please: Write a Python function `add(a, b)` that adds them.",
        'def add(a, b):\n    """Add two numbers that are given."""\n',
    ],
)
def test_other_words_are_no_request_in_ours(prompt: str) -> None:
    assert parsed(prompt) is None


@pytest.mark.parametrize("part", ["train", "benchmark", "holdout"])
def test_the_whole_bank_asks_in_these_words(part: str) -> None:
    asked = {problem.entry_point: parsed(problem.prompt) for problem in read_problems(f"bank:{part}")}
    assert [name for name, found in asked.items() if found is None or not found.signature.startswith(name)] == []
