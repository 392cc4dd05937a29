"""From a problem to the words that the model sees, and from its answer to code. Training and exams share both."""

import re
from collections.abc import Collection

from rlm_core.problems import Problem

_BLOCK = re.compile(r"```[ \t]*(?:(?P<language>\w+)[ \t]*)?\r?\n(?P<code>.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = {"", "py", "python", "python3"}
_DEFINES = re.compile(r"^[ \t]*(?:def|class|async[ \t]+def)\s|=[ \t]*lambda\b", re.MULTILINE)


def problem_prompt(problem: Problem, suffix: str) -> str:
    """The user's message that asks for an answer to `problem`.

    Args:
        suffix: added when code is asked for. Other prompts say themselves how an answer is to look.
    """
    if not problem.asks_for_code:
        return problem.prompt
    named = not problem.calls_entry_point or re.search(rf"\b{re.escape(problem.entry_point)}\b", problem.prompt)
    name = "" if named else f" Name the function `{problem.entry_point}`."
    return f"{problem.prompt}{name}{suffix}"


FENCE = "```"


def in_block(code: str) -> str:
    """An answer that is this code and nothing more."""
    return f"{FENCE}python\n{code}\n{FENCE}\n"


def has_whole_block(text: str) -> bool:
    """Whether an answer holds a block of Python that is closed: what comes after it cannot change `extract_code`."""
    return any(
        block[0].endswith(FENCE) and block["code"].strip() and (block["language"] or "").lower() in _PYTHON
        for block in _BLOCK.finditer(text)
    )


def first_block(text: str, languages: Collection[str] = ()) -> str | None:
    """What is in the first fenced block of a text, closed or cut off, or None when there is none.

    Args:
        languages: in lower case; by default, whatever the block is marked as.
    """
    return next(
        (
            block["code"]
            for block in _BLOCK.finditer(text)
            if not languages or (block["language"] or "").lower() in languages
        ),
        None,
    )


def extract_code(text: str) -> str | None:
    """The code in an answer: its first block of Python, closed or cut off, or else all of it if it defines something.

    The text is only searched, never parsed: whatever a model wrote is parsed in the sandbox alone.

    Returns:
        The code, or None when the answer holds none.
    """
    block = first_block(text, _PYTHON)
    code = text if block is None else block
    return code if _DEFINES.search(code) else None
