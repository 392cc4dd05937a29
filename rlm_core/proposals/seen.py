"""What a problem's cases show of the inputs that it takes: whether another input is like them, and some that are.

A description seldom says all that its author took for granted: that a list is sorted, that a number is not negative.
The cases keep to it. So no conclusion is drawn from an input that is unlike all of them.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, zip_longest
from typing import Any

from pydantic import JsonValue


def admits(seen: Sequence[JsonValue], value: JsonValue) -> bool:
    """Whether a value is like those that were seen in its place.

    Numbers and lengths are within their range, letters of their sorts, the elements of lists like theirs; where all
    lists that were seen are in order, or without repeats, so is it. Objects that all have the same names are records,
    and each field is compared with its like; others are tables, and so are graphs, see `_is_like_tables`.
    """
    alike: list[Any] = [each for each in seen if type(each) is type(value)]
    match value:
        case bool() | None:
            return value in alike
        case dict():
            return bool(alike) and (_is_like_records if _are_records(alike) else _is_like_tables)(alike, value)
        case int() | float():
            return bool(alike) and min(alike) <= value <= max(alike)
        case str():
            return _has_a_length_of(alike, value) and set().union(*map(_sorts, alike)) >= _sorts(value)
        case list():
            elements = list(chain.from_iterable(alike))
            habits = (each for each in (_in_order, _without_repeats) if all(map(each, alike)))
            return (
                _has_a_length_of(alike, value)
                and all(admits(elements, each) for each in value)
                and all(habit(value) for habit in habits)
            )
    return False


def variations(inputs: Sequence[Sequence[JsonValue]], most: int, hints: Sequence[int] = ()) -> list[list[JsonValue]]:
    """Inputs that differ from given ones in one argument, and are like them.

    Args:
        inputs: those of a problem's cases.
        most: how many at most; they are of as many cases as can be.
        hints: numbers at which something may change; they and those beside them are tried first.
    """
    seen = [list(values) for values in zip_longest(*inputs)]
    special = list(dict.fromkeys(hint + step for hint in hints for step in (0, 1, -1)))
    rows = zip_longest(*(_varied(given, seen, special) for given in inputs))
    found: list[list[JsonValue]] = []
    for each in chain.from_iterable(rows):
        if each is not None and each not in inputs and each not in found:
            found.append(each)
        if len(found) == most:
            break
    return found


def _varied(
    given: Sequence[JsonValue], seen: Sequence[Sequence[JsonValue]], special: Sequence[int]
) -> Iterator[list[JsonValue]]:
    for position, value in enumerate(given):
        for other in _near(value, special):
            if admits(seen[position], other):
                yield [*given[:position], other, *given[position + 1 :]]


def _near(value: JsonValue, special: Sequence[int]) -> Iterator[JsonValue]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (*special, value + 1, value - 1, -value, value + 2, 0)
        case float():
            yield from (value + 0.5, -value)
        case str():
            yield from (value[1:], value + value[:1], value[::-1], value.swapcase())
        case list():
            for position, element in enumerate(value[:3]):
                yield from ([*value[:position], other, *value[position + 1 :]] for other in _near(element, special))
            yield from (value[1:], value + value[:1], value[::-1])
        case dict():
            for name, held in [*value.items()][:3]:
                yield from (value | {name: other} for other in _near(held, special))
                yield {other: value[other] for other in value if other != name}


def _are_records(seen: Sequence[dict[str, Any]]) -> bool:
    return all(each.keys() == seen[0].keys() for each in seen)


def _is_like_records(seen: Sequence[dict[str, Any]], value: dict[str, Any]) -> bool:
    same_names = value.keys() == seen[0].keys()
    return same_names and all(admits([each[name] for each in seen], held) for name, held in value.items())


def _is_like_tables(seen: Sequence[dict[str, Any]], value: dict[str, Any]) -> bool:
    """Names like theirs, what is held like what they hold, no more and no fewer; a graph where all of them are."""
    names = list(chain.from_iterable(seen))
    held = list(chain.from_iterable(each.values() for each in seen))
    habits = (each for each in (_names_itself_alone, _goes_both_ways) if all(map(each, seen)))
    return (
        _has_a_length_of(seen, value)
        and all(admits(names, name) for name in value)
        and all(admits(held, each) for each in value.values())
        and all(habit(value) for habit in habits)
    )


def _names_itself_alone(table: dict[str, Any]) -> bool:
    """Whether all that a table holds is one of its names, or lists of them: neighbours in a graph."""
    return all(other in table for held in table.values() for other in _names_in(held))


def _goes_both_ways(table: dict[str, Any]) -> bool:
    return all(name in _names_in(table.get(other)) for name, held in table.items() for other in _names_in(held))


def _names_in(held: Any) -> list[str]:
    return [str(each) for each in (held if isinstance(held, list) else [held])]


def _sorts(text: str) -> set[tuple[str, ...]]:
    """The sorts of characters in a text, and what stands beside those that are neither letters nor digits."""
    sorts = ["start", *map(_sort, text), "end"]
    beside = {pair for pair in pairwise(sorts) if not all(len(sort) > 1 for sort in pair)}
    return {(sort,) for sort in sorts} | beside


def _sort(letter: str) -> str:
    """Lower case, upper case, other letters and digits are of a sort; every other character is one by itself."""
    for sort in ("islower", "isupper", "isalpha", "isdigit"):
        if getattr(letter, sort)():
            return sort
    return letter


def _has_a_length_of(seen: Sequence[Any], value: Any) -> bool:
    lengths = [len(each) for each in seen]
    return bool(lengths) and min(lengths) <= len(value) <= max(lengths)


def _in_order(values: Sequence[Any]) -> bool:
    try:
        return all(a <= b for a, b in pairwise(values))
    except TypeError:
        return False


def _without_repeats(values: Sequence[Any]) -> bool:
    return all(value not in values[:i] for i, value in enumerate(values))
