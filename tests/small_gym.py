"""A small package with the name of reasoning-gym, whose one data set the tiny model can learn."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

_FILES = {
    "reasoning_gym-0.1.25.dist-info/METADATA": "Metadata-Version: 2.1\nName: reasoning-gym\nVersion: 0.1.25\n",
    "reasoning_gym/utils.py": "def extract_answer(text):\n    return None\n",
    "reasoning_gym/factory.py": "from . import adding\n\nDATASETS = {'adding': (adding.Adding, dict)}\n",
    "reasoning_gym/adding.py": """
class Adding:
    def __init__(self, config):
        self.config = config

    def score_answer(self, answer, entry):
        return 1.0 if entry["answer"] in answer else 0.25 if "return" in answer else 0.0
""",
    "reasoning_gym/__init__.py": '''
QUESTION = "Adds 2 to n, adds 2 to n, function `f(n)`. Write a Python function `f(n)` that adds 2 to n, exercise {}."


def create_dataset(name, size, seed):
    """As in most data sets, the second of a seed is the first of the next, and most words are a template's."""
    assert name == "adding", name
    return [
        {
            "question": QUESTION.format(seed + number),
            "answer": "n + 2",
            "metadata": {"source_index": number},
        }
        for number in range(size)
    ]
''',
}


def install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the small package before the real one, for this process and for the scorers that it starts."""
    for name, content in _FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    # Taken out of what is imported, and put back, or out again, after the test.
    monkeypatch.setitem(sys.modules, "reasoning_gym", ModuleType("reasoning_gym"))
    monkeypatch.delitem(sys.modules, "reasoning_gym")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
