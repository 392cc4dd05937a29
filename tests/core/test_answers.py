"""What the model is asked, and how code is taken out of what it answers."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_core.answers import extract_code, has_whole_block, problem_prompt
from rlm_core.problems import Case, Problem

CODE = "def f(n):\n    return n\n"


def problem(prompt: str, entry_point: str) -> Problem:
    return Problem(prompt=prompt, entry_point=entry_point, cases=(Case(input=[1], expected=1),))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (f"```python\n{CODE}```", CODE),
        (f"Sure!\n\n```python\n{CODE}```\nIt returns n.", CODE),
        (f"```py\n{CODE}```", CODE),
        (f"```Python\n{CODE}```", CODE),
        (f"``` python \n{CODE}```", CODE),
        (f"```\n{CODE}```", CODE),
        (f"```python\n{CODE}", CODE),
        ("```python\ndef f(n):\n    retu", "def f(n):\n    retu"),
        (f"```python\n{CODE}```\nor\n```python\ndef f(n): return 2\n```", CODE),
        (CODE, CODE),
        (f"Here it is:\n{CODE}", f"Here it is:\n{CODE}"),
        ("f = lambda n: n", "f = lambda n: n"),
        ("```python\nf = lambda n: n\n```", "f = lambda n: n\n"),
        ("class f:\n    pass", "class f:\n    pass"),
        ("async def f(n): ...", "async def f(n): ..."),
        ("    def f(n): ...", "    def f(n): ..."),
        ("import math\n\n@cache\ndef f(n): ...", "import math\n\n@cache\ndef f(n): ..."),
    ],
)
def test_code_is_taken_out_of_an_answer(answer: str, code: str) -> None:
    assert extract_code(answer) == code


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I am sorry, I cannot do that.",
        "To define a class of functions, think of undefined behaviour.",
        "```python\n```",
        "```python\nreturn n\n```",
        "```\nno code here\n```",
        "definitely(1)",
        "print(n)",
        "lambda n: n",
        "`def f(n)` is what you want",
    ],
)
def test_an_answer_without_a_definition_holds_no_code(answer: str) -> None:
    assert extract_code(answer) is None


@pytest.mark.parametrize("opening", ["```python\r\n", "```python3\n", "```PYTHON\n"])
def test_a_fence_is_known_however_it_is_written(opening: str) -> None:
    assert extract_code(f"Here:\n{opening}{CODE}```\nThat is all.") == CODE


def test_a_block_of_another_language_is_not_the_answer() -> None:
    assert extract_code(f"```bash\npip install x\n```\nand then\n```python\n{CODE}```") == CODE


@pytest.mark.parametrize(
    "piece", ["\n", "\t\n", "```", "```\n", "``` ", "`", " ", "= ", "=\n", "def", "class ", "x = lambd\n"]
)
@pytest.mark.parametrize("opening", ["", "```"])
def test_a_long_answer_is_searched_in_linear_time(opening: str, piece: str) -> None:
    text = opening + piece * (20_000 // len(piece))
    started = time.process_time()
    extract_code(text)
    assert time.process_time() - started < 0.1


def test_the_name_is_added_to_a_prompt_that_lacks_it() -> None:
    assert problem_prompt(problem("Return n.", "same"), " Go.") == "Return n. Name the function `same`. Go."


def test_a_prompt_that_has_the_name_stays_as_it_is() -> None:
    prompt = "Write a Python function `same(n)` that returns n."
    assert problem_prompt(problem(prompt, "same"), " Go.") == f"{prompt} Go."


def test_a_name_that_is_only_a_part_of_a_word_is_not_a_name() -> None:
    assert "`f`" in problem_prompt(problem("Return the factorial of n.", "f"), "")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("```python\ndef f():\n    return 1\n```", True),
        ("Sure:\n```py\nx = 1\n```\nand so on", True),
        ("```python\ndef f():\n    return 1\n", False),
        ("```python\ndef f():\n    return 1\n``", False),
        ("```python\n```", False),
        ("```bash\nls\n```", False),
        ("```bash\nls\n```\n```python\nx = 1\n```", True),
        ("def f():\n    return 1\n", False),
        ("", False),
    ],
)
def test_a_whole_block_is_one_that_is_closed(text: str, whole: bool) -> None:
    assert has_whole_block(text) == whole


@given(st.text(alphabet="`pyhton\n =def:1"), st.text(alphabet="`python\n =def:1"))
def test_what_comes_after_a_whole_block_does_not_matter(text: str, more: str) -> None:
    if has_whole_block(text):
        assert extract_code(text + more) == extract_code(text)
