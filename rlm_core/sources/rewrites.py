"""Mutants made without the model: a solution is changed, and its description with it.

A change is made only where both sides of it are found exactly once: the words and the number in the description, the
comparison and the number in the solution. And only where every other word is a plain one: "a teenager, older than 12"
would no longer be right with another number. Two changes are right by construction instead: the opposite of a yes or
no, and one function applied to what another returns. What the new solution gives is found out when it is run.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

import numpy as np

from rlm_core.problems import Cases, Change, Problem, Provenance
from rlm_core.proposals.seen import admits
from rlm_core.request import parsed, request
from rlm_core.sources.procedural.compose import STARTS, STEPS

_SIGNATURE = re.compile(r"(?P<name>\w+)\((?P<arguments>[\w, ]+)\)")
_YES_OR_NO = re.compile(r"returns True if (?P<when>[^.;]+?)(,? and False otherwise|,? otherwise False|,? else False)?")
_FEWEST_CASES = 5
_PARTNERS = 20
"""Problems that one is tried to be composed with."""

_COMPARED: dict[str, type[ast.cmpop]] = {
    "greater than": ast.Gt,
    "larger than": ast.Gt,
    "more than": ast.Gt,
    "above": ast.Gt,
    "longer than": ast.Gt,
    "greater than or equal to": ast.GtE,
    "at least": ast.GtE,
    "less than": ast.Lt,
    "smaller than": ast.Lt,
    "fewer than": ast.Lt,
    "below": ast.Lt,
    "shorter than": ast.Lt,
    "less than or equal to": ast.LtE,
    "at most": ast.LtE,
}
"""How a comparison with a number is said."""
_DIVIDED = ("divisible by", "multiples of", "a multiple of")
_BOUNDARY = {
    "greater than": "greater than or equal to",
    "less than": "less than or equal to",
    "more than": "at least",
    "fewer than": "at most",
}
_OPPOSITE = {
    "greater than": "less than or equal to",
    "less than": "greater than or equal to",
    "more than": "at most",
    "fewer than": "at least",
}


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"`[^`]*`|\{\w+\}", " ", text.lower())))


_PLAIN = (
    set().union(
        *(_words(text) for start in STARTS for text in (*start.whole, *start.elements, *start.verb)),
        *(_words(text) for step in STEPS for text in (*step.noun, *step.verb, *step.alone)),
        *map(_words, (*_COMPARED, *_DIVIDED)),
    )
    | _words("returns how many true false if otherwise and or is are that which it of given returning then first")
    | _words("finally number integer integers string word words list among result resulting every all any no not only")
)
"""Words that say the same whatever the numbers beside them are."""
_OPEN = _words("first last longest shortest largest smallest maximum minimum minus product range most common")
"""Words that say nothing about some lists: there is no largest number in an empty one, and two words may be longest."""
_TIED = _words("longest shortest most common")


def rewritten(parents: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """Up to `count` mutants of different kinds, each kind as often as the others where there are enough.

    Args:
        parents: problems whose descriptions are known to fit their solutions. What a model wrote is not used.
    """
    rng = np.random.default_rng(seed)
    usable = [parent for parent in parents if _usable(parent)]
    order = [usable[i] for i in rng.permutation(len(usable))]
    kinds = [_each(order, make, rng) for make in (_other_number, _other_boundary, _opposite)] + [_composed(order)]
    made = (each for each in chain.from_iterable(zip_longest(*kinds)) if each is not None)
    return list(islice(made, count))


@dataclass(frozen=True)
class _Asked:
    """A request that can be changed."""

    name: str
    arguments: str
    """`a, b`"""
    what: str
    """What the function does, without the full stop at the end."""

    @classmethod
    def of(cls, problem: Problem) -> "_Asked | None":
        """What a problem asks for, when it does so in the usual words."""
        asked = parsed(problem.prompt)
        signature = _SIGNATURE.fullmatch(asked.signature) if asked else None
        if asked is None or signature is None or not asked.what.endswith("."):
            return None
        return cls(signature["name"], signature["arguments"], asked.what.removesuffix("."))


def _usable(parent: Problem) -> bool:
    """Whether a problem has what is changed: a request in the usual form, a solution that can be read, and inputs."""
    if not parent.reference or not isinstance(parent.verifier, Cases) or parent.provenance.written_by_model:
        return False
    asked = _Asked.of(parent)
    if asked is None or not all(name.strip().isidentifier() for name in asked.arguments.split(",")):
        return False
    try:
        ast.unparse(ast.parse(parent.reference))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = f"{parent.entry_point}("
    written = asked.name == parent.entry_point and (parent.signature or called).startswith(called)
    return written and all(case.input for case in parent.cases)


_Maker = Callable[[Problem, np.random.Generator], Problem | None]


def _each(parents: Sequence[Problem], make: _Maker, rng: np.random.Generator) -> Iterator[Problem]:
    for parent in parents:
        if made := make(parent, rng):
            yield made


# ---------------------------------------------------------------------------------- a number, a boundary, a condition


def _other_number(parent: Problem, rng: np.random.Generator) -> Problem | None:
    """The problem with another number in its condition."""
    for phrase in (*_COMPARED, *_DIVIDED):
        if (number := _number_after(phrase, parent)) is not None and number > 1:
            other = int(rng.choice([number + 1, number + 2, number * 2]))
            if solution := _with_comparison(parent, number, _COMPARED.get(phrase), other):
                return _renamed(parent, solution, f"{phrase} {number}", f"{phrase} {other}", "number")
    return None


def _other_boundary(parent: Problem, _: np.random.Generator) -> Problem | None:
    """The problem with a boundary that belongs to the other side."""
    return _otherwise_compared(parent, _BOUNDARY, "boundary")


def _opposite(parent: Problem, _: np.random.Generator) -> Problem | None:
    """The problem that takes what this one leaves, or says no where this one says yes."""
    return _opposite_answer(parent) or _otherwise_compared(parent, _OPPOSITE, "opposite")


def _otherwise_compared(parent: Problem, phrases: dict[str, str], change: Change) -> Problem | None:
    for phrase, other in phrases.items():
        if (number := _number_after(phrase, parent)) is not None:
            solution = _with_comparison(parent, number, _COMPARED[phrase], number, _COMPARED[other])
            if solution:
                return _renamed(parent, solution, f"{phrase} {number}", f"{other} {number}", change)
    return None


def _number_after(phrase: str, parent: Problem) -> int | None:
    """The number that follows the phrase, when the description says it once, and nothing but plain words beside it."""
    asked = _Asked.of(parent)
    if asked is None or _words(asked.what) - _PLAIN - set(re.findall(r"\w+", asked.arguments)):
        return None
    if _words(re.sub("^first ", "", asked.what)) & _OPEN:  # another condition may leave another list
        return None
    found = re.findall(rf"\b{phrase} (\d{{1,9}})(?![\w.])", asked.what)
    every = re.findall(r"\d+", asked.what)
    return int(found[0]) if len(found) == 1 and every.count(found[0]) == 1 else None


def _with_comparison(
    parent: Problem, number: int, op: type[ast.cmpop] | None, other: int, other_op: type[ast.cmpop] | None = None
) -> ast.Module | None:
    """The solution with one comparison changed, when there is one such and the number is nowhere else in it.

    Args:
        op: how it compares with the number; None for a remainder of a division by it.
        other_op: how it is to compare; None leaves that as it is.
    """
    tree = ast.parse(str(parent.reference))
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == number]
    if len(constants) != 1:
        return None
    constant = constants[0]
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[found], comparators=[right]) if op and type(found) is op and right is constant:
                node.ops = [other_op()] if other_op else node.ops
            case ast.BinOp(op=ast.Mod(), right=right) if op is None and right is constant:
                pass
            case _:
                continue
        constant.value = other
        return tree
    return None


def _renamed(parent: Problem, solution: ast.Module, words: str, others: str, change: Change) -> Problem:
    """The mutant, under a name that says nothing: the old one may tell what was changed."""
    argument = re.findall(r"\w+", parent.prompt.partition("(")[2])[0]
    name = f"solve_{argument}"
    for node in ast.walk(solution):
        if isinstance(node, ast.FunctionDef) and node.name == parent.entry_point:
            node.name = name
        elif isinstance(node, ast.Name) and node.id == parent.entry_point:
            node.id = name
    prompt = parent.prompt.replace(f"`{parent.entry_point}(", f"`{name}(").replace(words, others)
    return _mutant(parent, name, prompt, ast.unparse(solution) + "\n", change)


# -------------------------------------------------------------------------------------------------- by construction


def _opposite_answer(parent: Problem) -> Problem | None:
    asked = _Asked.of(parent)
    found = _YES_OR_NO.fullmatch(asked.what) if asked else None
    if asked is None or found is None or re.search("True|False|return", found["when"]):
        return None
    if not all(isinstance(case.expected, bool) for case in parent.cases):
        return None
    name, arguments = f"not_{parent.entry_point}", asked.arguments
    prompt = request(f"{name}({arguments})", f"returns False if {found['when']}, and True otherwise.")
    code = f"def {name}({arguments}):\n    return not {parent.entry_point}({arguments})\n"
    return _mutant(parent, name, prompt, f"{parent.reference}\n\n{code}", "opposite")


def _composed(parents: Sequence[Problem]) -> Iterator[Problem]:
    for position, inner in enumerate(parents):
        partners = (*parents[position + 1 :], *parents[:position])[:_PARTNERS]
        if made := next((made for outer in partners if (made := _applied(outer, inner))), None):
            yield made


def _applied(outer: Problem, inner: Problem) -> Problem | None:
    """The problem of what `outer` makes of what `inner` returns, where that is like the inputs that it is asked for."""
    ask_outer, ask_inner = _Asked.of(outer), _Asked.of(inner)
    if ask_outer is None or ask_inner is None or "," in ask_outer.arguments:
        return None
    if ". " in ask_outer.what + ask_inner.what:  # each is to be a part of one sentence
        return None
    if _words(ask_outer.what) & _TIED or _defined(outer) & _defined(inner):
        return None
    if outer.preamble or inner.preamble:  # one file cannot have both, and a solution is whole without
        return None
    if inner.unordered or inner.float_tolerance > outer.float_tolerance:  # what is right inside is not one value
        return None
    seen = [case.input[0] for case in outer.cases]
    cases = tuple(case for case in inner.cases if not case.raises and admits(seen, case.expected))
    if len(cases) < _FEWEST_CASES:
        return None
    name, arguments = f"{outer.entry_point}_of_{inner.entry_point}", ask_inner.arguments
    first, second = f"{inner.entry_point}({arguments})", f"{outer.entry_point}({ask_outer.arguments})"
    prompt = request(
        f"{name}({arguments})",
        f"returns `{outer.entry_point}({first})`. There `{first}` {ask_inner.what}, and `{second}` {ask_outer.what}. "
        "Write these two functions too.",
    )
    code = f"def {name}({arguments}):\n    return {outer.entry_point}({first})\n"
    solution = f"{inner.reference}\n\n{outer.reference}\n\n{code}"
    made = _mutant(inner, name, prompt, solution, "composed")
    compared = {"float_tolerance": outer.float_tolerance, "unordered": outer.unordered}
    provenance = made.provenance.model_copy(update={"composed_with": outer.id})
    return made.model_copy(update={"cases": cases, "signature": None, "provenance": provenance, **compared})


def _defined(problem: Problem) -> set[str]:
    """The names at the top of a solution; two that have one in common cannot stand in one file."""
    body = ast.parse(str(problem.reference)).body
    names = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    assigned = (node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name))
    top = {*names, problem.entry_point}
    stored = any(not isinstance(node, ast.FunctionDef | ast.Import) for node in body)
    return top | set(assigned) if stored else top


def _mutant(parent: Problem, name: str, prompt: str, solution: str, change: Change) -> Problem:
    """A mutant with the parent's inputs. What its cases expect is still the parent's: it is run for before use."""
    signature = parent.signature and name + parent.signature[parent.signature.index("(") :]
    fields = {
        "prompt": prompt,
        "entry_point": name,
        "signature": signature,
        "reference": solution,
        "difficulty": None,
        "provenance": Provenance(source="mutation", parent=parent.id, change=change),
    }
    return Problem.model_validate(dict(parent) | fields)
