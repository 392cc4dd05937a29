"""From a problem to the words that the model sees, and from its answer to code. Training and exams share both."""

import re

from rlm_core.records import Problem

_BLOCK = re.compile(r"```[ \t]*(?:python|py|Python)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def problem_prompt(problem: Problem, suffix: str) -> str:
    """The user's message that asks for an answer to `problem`."""
    named = "" if problem.entry_point in problem.prompt else f" Name the function `{problem.entry_point}`."
    return f"{problem.prompt}{named}{suffix}"


def extract_code(text: str) -> str | None:
    """The code in an answer: the first fenced block, closed or cut off, or else the whole text if it defines something.

    The text is only searched, never parsed: whatever a model wrote is parsed in the sandbox alone.

    Returns:
        The code, or None when the answer holds none.
    """
    block = _BLOCK.search(text)
    code = block.group(1) if block else text
    return code if re.search(r"^\s*(?:def|class|async def)\s|=\s*lambda\b", code, re.MULTILINE) else None
