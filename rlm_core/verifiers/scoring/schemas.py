"""Validation by a JSON Schema."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from rlm_core.answers import first_block
from rlm_core.sandbox.text import readable
from rlm_core.verifiers.scoring import BadVerifier, ScoreText, Worth, scored


def by_schema(schema: dict[str, Any], depth: int) -> ScoreText:
    """Valid or not, by a schema that refers to nothing outside of itself.

    Raises:
        BadVerifier: it is no schema, refers to something outside or missing, or never ends.
    """
    import jsonschema
    from referencing import Registry

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    _check_schema(schema, kind)
    # An empty registry: with the default one, jsonschema would fetch what a reference names.
    validator = kind(schema, registry=Registry())

    def score_text(text: str) -> Worth:
        try:
            value = _parse(text)
        except ValueError as error:
            return scored(readable(f"is not JSON: {error}"))
        if _depth(value) > depth:
            return scored(f"is JSON nested deeper than {depth}")
        wrong = next(validator.iter_errors(value), None)
        return scored(readable(f"is not valid: {wrong.json_path}: {wrong.message}")) if wrong else scored("")

    try:
        for example in ("null", "{}", "[]", '""', "0"):
            score_text(example)
    except RecursionError as error:
        raise BadVerifier("its schema refers to itself without end") from error
    return score_text


def _check_schema(schema: dict[str, Any], kind: Any) -> None:
    import jsonschema
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if "$schema" in schema and schema["$schema"] not in _known_drafts():
        raise BadVerifier(f"its schema is for {schema['$schema']!r}, which is not a known draft")
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise BadVerifier(f"its schema is none: {error.json_path}: {error.message}") from error
    resolver = Registry().resolver_with_root(Resource.from_contents(schema, DRAFT202012))
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise BadVerifier(
                f"its schema refers to {reference!r}; only references within it, which begin with #, work"
            )
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            raise BadVerifier(f"its schema refers to {reference!r}, which is not in it") from error


def _known_drafts() -> list[str]:
    import jsonschema

    drafts = [jsonschema.Draft3Validator, jsonschema.Draft4Validator, jsonschema.Draft6Validator]
    drafts += [jsonschema.Draft7Validator, jsonschema.Draft201909Validator, jsonschema.Draft202012Validator]
    names = {str(draft.META_SCHEMA.get("$id") or draft.META_SCHEMA.get("id")) for draft in drafts}
    return [*names, *(name.removesuffix("#") for name in names)]


def _references(schema: Any) -> Iterator[str]:
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield from (
                part[word] for word in ("$ref", "$dynamicRef", "$recursiveRef") if isinstance(part.get(word), str)
            )
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else []


def _parse(text: str) -> Any:
    """The JSON in a text: in its first block that is marked as JSON, or else its first block, or else all of it.

    Raises:
        ValueError: it is no JSON, or holds a number that a float cannot.
    """
    content = first_block(text, {"json"}) or first_block(text) or text
    try:
        return json.loads(content, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def _depth(value: Any) -> int:
    """How deeply a value nests; 0 for one that holds no others."""
    deepest, pending = 0, [(value, 0)]
    while pending:
        part, level = pending.pop()
        deepest = max(deepest, level)
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        pending += [(each, level + 1) for each in inner]
    return deepest
