"""A small reader of Seatbelt profiles: what a profile says of one operation. As far as ours need it, and strict.

It follows what others found out about the language, for there is no specification: denied unless allowed; a rule about
an operation itself counts before one about its family (`file-read*`); of equals the last that matches decides.
"""

import re
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(r"\s+|;[^\n]*|(?P<token>[()']|\"(?:[^\"\\]|\\.)*\"|[^\s()';\"]+)")
Form = Any
"""A string, a quoted string as ("text", …), or a list of forms."""


@dataclass(frozen=True)
class Attempt:
    """What a process tries."""

    operation: str
    path: str = ""
    kind: str = "REGULAR-FILE"
    """Of file."""
    target: str = "others"
    """Process that it concerns: self or others."""
    name: str = ""
    """Of a sysctl, or number of a system call."""


def parse(text: str) -> list[Form]:
    """The forms of a profile.

    Raises:
        ValueError: brackets or quotes do not match.
    """
    stack: list[list[Form]] = [[]]
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"no token at {text[position : position + 20]!r}")
        position = match.end()
        token = match["token"]
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError("a bracket too many")
            closed = stack.pop()
            stack[-1].append(closed)
        elif token is not None and token != "'":
            stack[-1].append(("text", token[1:-1]) if token[0] == '"' else token)
    if len(stack) != 1:
        raise ValueError("a bracket is missing")
    return stack[0]


def allowed(text: str, parameters: dict[str, str], attempt: Attempt) -> bool:
    """Whether a profile with these parameters allows an attempt."""
    best, verdict = 0, ""
    for action, operations, filters in _rules(parse(text)):
        rank = max(_rank(each, attempt.operation) for each in operations)
        applies = rank and (not filters or any(_matches(each, parameters, attempt) for each in filters))
        if applies and rank >= best:
            best, verdict = rank, action
    return verdict == "allow"


def _rules(forms: list[Form]) -> list[tuple[str, list[str], list[Form]]]:
    rules = []
    for form in forms:
        match form:
            case ["version", "1"]:
                pass
            case ["when", ["defined?", "syscall-unix"], *inner]:
                rules += _rules(inner)
            case ["allow" | "deny" as action, *rest]:
                rules.append((action, [each for each in rest if isinstance(each, str)],
                              [each for each in rest if isinstance(each, list)]))  # fmt: skip
            case _:
                raise ValueError(f"not a rule: {form}")
    return rules


def _rank(pattern: str, operation: str) -> int:
    if pattern == "default":
        return 1
    if pattern.endswith("*"):
        return 2 if operation.startswith(pattern[:-1]) else 0
    return 3 if pattern == operation else 0


def _matches(form: Form, parameters: dict[str, str], attempt: Attempt) -> bool:
    def value(argument: Form) -> str:
        return parameters[argument[1][1]] if isinstance(argument, list) else str(argument[1])

    match form:
        case ["require-all", *inner]:
            return all(_matches(each, parameters, attempt) for each in inner)
        case ["literal", argument]:
            return attempt.path == value(argument)
        case ["subpath", argument]:
            return attempt.path == value(argument) or attempt.path.startswith(value(argument) + "/")
        case ["vnode-type", kind]:
            return bool(attempt.kind == kind)
        case ["target", target]:
            return bool(attempt.target == target)
        case ["sysctl-name", argument]:
            return attempt.name == value(argument)
        case ["sysctl-name-prefix", argument]:
            return attempt.name.startswith(value(argument))
        case ["syscall-number", *numbers]:
            return attempt.name in numbers
        case _:
            raise ValueError(f"not a filter: {form}")
