"""What a primitive is: one typed step of a program, as Python and in words."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "ints", "text", "words"]
"""Types of values: a whole number, a list of them, a string, a list of strings."""
LISTS: tuple[Kind, ...] = ("ints", "words")
HINTS: dict[Kind, str] = {"int": "int", "ints": "list[int]", "text": "str", "words": "list[str]"}
"""Python's names for the kinds."""


@dataclass(frozen=True)
class Argument:
    """A parameter of the function that is asked for."""

    name: str
    kind: Kind
    range: str
    """Name of the values that it takes; see inputs.py."""


@dataclass(frozen=True)
class Start:
    """What a program starts from: one argument as it is, or two that are put together.

    Texts hold `{a}` and `{b}` for the arguments.
    """

    name: str
    arguments: tuple[Argument, ...]
    gives: Kind
    code: str
    whole: tuple[str, ...]
    """The value as one thing: "the list {a}", "the product of {a} and {b}"."""
    elements: tuple[str, ...] = ()
    """For lists, its elements: "the numbers in the list {a}"."""
    cost: int = 0
    verb: tuple[str, ...] = ()
    """What is done, where a noun phrase would not be clear within another one."""


@dataclass(frozen=True)
class Step:
    """One step of a program.

    Code holds `{x}` for the value so far and `{k}` for a parameter. Words hold `{x}` for the value so far as one thing,
    for lists also `{xs}` for its elements ("the numbers in the list `a`"), `{in}` for where they are ("in the list
    `a`"), `{bare}` for the elements without "the", and `{k}`.
    """

    name: str
    """Part of the function's name."""
    takes: Kind
    gives: Kind
    code: str
    noun: tuple[str, ...]
    """Noun phrases for what comes out, and for lists for the elements of it; one is chosen by the seed."""
    verb: tuple[str, ...] = ()
    """What is done, in the third person; none for what can only come last."""
    alone: tuple[str, ...] = ()
    """More noun phrases, for this step alone on one argument; within others they would not be clear."""
    cost: int = 2
    """1 for what a small model can do, 3 for what is long to write."""
    guard: str = "True"
    """When the step makes sense, as Python; inputs for which it is false are in no case."""
    trailing: bool = False
    """Whether the noun phrase ends in words that would be taken to belong to a following step."""
    constants: tuple[int | str, ...] = ()
    """Values for the parameter."""
    argument: Argument | None = None
    """The parameter as an argument of the function, which costs one more."""
