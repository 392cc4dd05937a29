"""Runs of words or of code's tokens that two problems share."""

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rlm_core.problems import Problem
from rlm_core.request import parsed

_WORDS = 8
_TOKENS = 20
"""Shorter programs are alike by chance; what they do tells whether they are the same, see twins.py."""
_WHOLE = 15
"""From so many tokens on, two programs that differ in their names alone are the same problem, whatever their words.
Shorter ones may not be: `return part in text` asks for one thing of texts, and for others of lists and of graphs."""
_FEWEST_WORDS = 5
"""Shorter requests are looked for by no run of words: "adds up all numbers" alone tells nothing."""
_KEPT = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)


def asked_words(prompt: str) -> list[str]:
    """The words of what a prompt asks for; the name of the function and the usual opening do not count."""
    asked = parsed(prompt)
    return re.findall(r"\w+", (asked.what if asked else prompt).lower())


def code_tokens(code: str) -> list[str]:
    """The tokens of a program, with every name that it defines replaced by the same one; none when it does not parse.

    Comments, layout, documentation, annotations and the choice of names do not count.
    """
    tokens, own = _parsed(code)
    return ["_" if each in own else each for each in tokens]


def whole_program(code: str) -> tuple[str, ...]:
    """The tokens of a program, its own names numbered in their order; none where it is too short to tell."""
    tokens, own = _parsed(code)
    numbers = {name: f"_{number}" for number, name in enumerate(dict.fromkeys(each for each in tokens if each in own))}
    return tuple(numbers.get(each, each) for each in tokens) if len(tokens) >= _WHOLE else ()


def _parsed(code: str) -> tuple[list[str], set[str]]:
    """Tokens that count, and the names that are the program's own."""
    try:
        tree = ast.parse(code)
        for node in ast.walk(tree):
            _strip(node)
        own = {name for node in ast.walk(tree) if (name := _defined(node))}
        source = io.StringIO(ast.unparse(tree))
        return [each.string for each in tokenize.generate_tokens(source.readline) if each.type in _KEPT], own
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return [], set()


def _strip(node: ast.AST) -> None:
    """Take away what a program does not do."""
    match node:
        case ast.arg():
            node.annotation = None
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())), _, *_]):
            node.returns, node.body = None, node.body[1:]
        case ast.FunctionDef():
            node.returns = None


def _defined(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return name
    return None


@dataclass(frozen=True)
class Grams:
    """A problem's request and solution, to be looked for in others. The right answer in words is no solution."""

    words: str
    code: str
    word_grams: tuple[str, ...]
    code_grams: tuple[str, ...]
    word_runs: frozenset[str]
    code_runs: frozenset[str]
    """All runs of the full length that it has, to be looked up in."""
    program: tuple[str, ...]

    @classmethod
    def of(cls, problem: Problem) -> Self:
        code = (problem.reference or "") if problem.asks_for_code else ""
        words, tokens = asked_words(problem.prompt), code_tokens(code)
        enough = len(words) >= _FEWEST_WORDS
        return cls(
            _line(words),
            _line(tokens),
            _grams(words, min(_WORDS, len(words))) if enough else (),
            _grams(tokens, _TOKENS),
            frozenset(_grams(words, _WORDS)),
            frozenset(_grams(tokens, _TOKENS)),
            whole_program(code),
        )

    def share_in(self, other: "Grams") -> float:
        """Share of the runs of 8 words, or of 20 tokens of code, that the other one has too; the larger of the two.

        All of it where the two programs are the same.
        """
        if self.program and self.program == other.program:
            return 1.0
        return max(
            _share(self.word_grams, other.words, other.word_runs), _share(self.code_grams, other.code, other.code_runs)
        )


def _share(grams: Sequence[str], text: str, runs: frozenset[str]) -> float:
    # A single gram may be shorter than a run. Several are runs themselves, and nearly always none is there.
    if len(grams) > 1 and runs.isdisjoint(grams):
        return 0.0
    return sum(gram in text for gram in grams) / len(grams) if grams else 0.0


def _grams(parts: Sequence[str], length: int) -> tuple[str, ...]:
    return tuple(_line(parts[i : i + length]) for i in range(len(parts) - length + 1))


def _line(parts: Sequence[str]) -> str:
    """With a separator on both sides of each part, so that only whole parts are found."""
    return "\n" + "\n".join(parts) + "\n"
