"""What the model must solve, and how an answer to it is judged.

A verifier is chosen by its `kind`. Verifiers can be composed; each is judged by a function of the same name under
rlm_core/verifiers/.
"""

import keyword
from collections.abc import Iterator
from typing import Annotated, Literal, Union

import regex
from pydantic import AfterValidator, Field, JsonValue, model_validator

from rlm_core.files import digest
from rlm_core.records import Record, Share
from rlm_core.sandbox.inside.remote import EXCEPTIONS
from rlm_core.sandbox.text import readable

_SHOWN_CHARS = 60
"""Of a prompt that stands for its problem."""


def _identifier(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError("must be a Python identifier and no keyword")
    return name


Identifier = Annotated[str, AfterValidator(_identifier)]
PassAt = Annotated[float, Field(gt=0, le=1)]
"""Score from which on an answer passes."""


class Case(Record):
    """One call of the entry point and what must come of it: a value, or an exception of the named builtin type."""

    input: list[JsonValue]
    expected: JsonValue = None
    raises: str | None = None

    @model_validator(mode="after")
    def _value_or_exception(self) -> "Case":
        if self.raises is None and "expected" not in self.model_fields_set:
            raise ValueError("a case needs 'expected' or 'raises'")
        if self.raises is not None and self.raises not in EXCEPTIONS:
            raise ValueError(f"raises {self.raises!r}, which is not a builtin exception")
        return self


# ---------------------------------------------------------------------------------------------------------- verifiers


class Cases(Record):
    """Run the code of the answer against the problem's cases and compare values. The default."""

    kind: Literal["cases"] = "cases"


class Pytest(Record):
    """Run pytest tests, written by a person, against the code of the answer, which they import from `main`."""

    kind: Literal["pytest"] = "pytest"
    tests: Annotated[str, Field(min_length=1)]
    """Source of the test module."""


def _pattern(text: str) -> str:
    try:
        regex.compile(text)
    except regex.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


class Regex(Record):
    """Search the answer's text for a regular expression (of the `regex` package; flags go inside, as in `(?i)yes`)."""

    kind: Literal["regex"] = "regex"
    pattern: Annotated[str, AfterValidator(_pattern)]
    full: bool = False
    """Whether the expression must match all of the text, white space around it aside."""

    @property
    def compiled(self) -> regex.Pattern[str]:
        """The expression, compiled; the package remembers it."""
        return regex.compile(self.pattern)


class JsonSchema(Record):
    """Parse the answer, or its first fenced block, as JSON and validate it against a JSON Schema.

    The schema is of draft 2020-12 unless its `$schema` names another, and refers to nothing outside of itself.
    """

    kind: Literal["json_schema"] = "json_schema"
    json_schema: dict[str, JsonValue]


class Exact(Record):
    """Compare the answer's text with the expected one, white space around both aside."""

    kind: Literal["exact"] = "exact"
    expected: str
    ignore_case: bool = False


class Numeric(Record):
    """Compare the last number in the answer's text with the expected one."""

    kind: Literal["numeric"] = "numeric"
    expected: Annotated[float, Field(allow_inf_nan=False)]
    tolerance: Annotated[float, Field(ge=0, le=1)] = 1e-6
    """Relative and absolute."""


class Function(Record):
    """Call a Python function of the user's own, outside of any sandbox; it is trusted.

    It must also be named in `verify.functions` of the config, so that a problem file alone cannot run anything.
    """

    kind: Literal["function"] = "function"
    function: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """Where it is: `package.module:name`."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Handed to it as keyword arguments, after the answer."""
    pass_at: PassAt = 1.0


class ReasoningGym(Record):
    """Score the answer with the scorer of a reasoning-gym dataset."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    entry: dict[str, JsonValue]
    """The dataset's item: question, answer, metadata."""
    pass_at: PassAt = 1.0


class All(Record):
    """Pass what every one of several verifiers passes; the score is the lowest."""

    kind: Literal["all"] = "all"
    of: Annotated[tuple["Verifier", ...], Field(min_length=1)]


class Any_(Record):
    """Pass what at least one of several verifiers passes; the score is the highest."""

    kind: Literal["any"] = "any"
    of: Annotated[tuple["Verifier", ...], Field(min_length=1)]


class WeightedPart(Record):
    """A part of a weighted verifier."""

    weight: Annotated[float, Field(gt=0, le=1e6)]
    verifier: "Verifier"


class Weighted(Record):
    """The weighted mean of several verifiers' scores; it passes from `pass_at` on."""

    kind: Literal["weighted"] = "weighted"
    of: Annotated[tuple[WeightedPart, ...], Field(min_length=1)]
    pass_at: PassAt = 1.0


Verifier = Annotated[
    Union[Cases, Pytest, Regex, JsonSchema, Exact, Numeric, Function, ReasoningGym, All, Any_, Weighted],  # noqa: UP007
    Field(discriminator="kind"),
]
Mode = Literal["cases", "pytest"]
"""Kinds of the verifiers that run the code of an answer."""
CODE = (Cases, Pytest)
"""Verifiers that run the code of an answer; the others look at its text."""

for _composed in (All, Any_, WeightedPart, Weighted):
    _composed.model_rebuild()


def direct_parts(verifier: Verifier) -> tuple[Verifier, ...]:
    """What a verifier is composed of, in order; nothing for one that is not composed."""
    if isinstance(verifier, All | Any_):
        return verifier.of
    return tuple(weight.verifier for weight in verifier.of) if isinstance(verifier, Weighted) else ()


def parts(verifier: Verifier) -> Iterator[Verifier]:
    """A verifier and all that it is composed of."""
    yield verifier
    for part in direct_parts(verifier):
        yield from parts(part)


# ----------------------------------------------------------------------------------------------------------- problems


Change = Literal["number", "boundary", "opposite", "composed"]
"""How a mutant's solution and description were changed together; see rewrites.py."""


class Provenance(Record):
    """Where a problem came from."""

    source: Literal["bank", "file", "model", "mutation", "procedural"] = "file"
    parent: str | None = None
    """Id of the problem that this one was mutated from."""
    change: Change | None = None
    """What was changed about it; None when a model wrote the mutant."""
    composed_with: str | None = None
    """Id of the problem whose function is applied to what the parent's returns."""
    expected_from: Literal["author", "reference"] = "author"
    """Who said what the cases expect: the problem's author, or a run of its reference solution in the sandbox."""

    reference_from: Literal["author", "majority"] = "author"
    """Who wrote the reference solution: the problem's author, or the model as it answered; see majority.py."""

    @property
    def written_by_model(self) -> bool:
        """Whether a model wrote the problem, with what it claims to be true of it."""
        return self.source == "model" or (self.source == "mutation" and self.change is None)


class Problem(Record):
    """What the model must solve. Smallest on disk: `{"prompt", "entry_point", "cases": [{"input", "expected"}]}`."""

    prompt: Annotated[str, Field(min_length=1)]
    entry_point: Identifier = "answer"
    """Name of the function that is asked for; needed for cases. Otherwise a name for people."""
    cases: tuple[Case, ...] = ()
    verifier: Verifier = Cases()
    signature: str | None = None
    domain: str = "general"
    difficulty: str | None = None
    reference: str | None = None
    """A program that is known to be right, whole: the preamble is not put before it."""
    preamble: str = ""
    """Code that is put before an answer's code when it is run, such as the imports that the prompt shows."""
    float_tolerance: Annotated[float, Field(ge=0)] = 0.0
    """Relative and absolute tolerance for floats; 0 compares exactly. Types are compared strictly in any case."""
    unordered: bool = False
    """Whether the order of a returned list does not matter."""
    test_ids: tuple[str, ...] = ()
    """Ids of all its pytest tests, such as `test_sign[-1]` or `TestStack::test_pop`; known once prepared."""
    test_questions: tuple[str, ...] = ()
    """What its tests ask of objects of the reference that an answer's objects could answer as they like; known once
    prepared."""
    trivial_share: Share | None = None
    """Score of the best trivial answer; known once it was prepared for partial credit."""
    provenance: Provenance = Provenance()

    @model_validator(mode="after")
    def _can_be_judged(self) -> "Problem":
        every = [part.kind for part in parts(self.verifier)]
        kinds = set(every)
        if "cases" in kinds and not self.cases:
            raise ValueError("cases: at least one is needed")
        if "cases" in kinds and "entry_point" not in self.model_fields_set:
            raise ValueError("entry_point: the name of the function that the cases call is needed")
        if every.count("pytest") > 1:
            raise ValueError("verifier: one with pytest tests is enough")
        if kinds - {"cases"} and self.provenance.written_by_model:
            raise ValueError("verifier: what a model made up is judged by cases alone: it could write the verdict")
        return self

    @property
    def asks_for_code(self) -> bool:
        """Whether an answer has to hold code."""
        return any(isinstance(part, CODE) for part in parts(self.verifier))

    @property
    def only_code_counts(self) -> bool:
        """Whether nothing but the code in an answer is looked at."""
        return all(isinstance(part, CODE) or direct_parts(part) for part in parts(self.verifier))

    @property
    def calls_entry_point(self) -> bool:
        """Whether the function that is asked for has to have the name of the entry point."""
        return any(isinstance(part, Cases) for part in parts(self.verifier))

    @property
    def id(self) -> str:
        """Content hash of what decides a verdict and what the model is shown."""
        cases = [case.model_dump(mode="json") for case in self.cases]
        decides = [self.prompt, self.entry_point, cases, self.float_tolerance, self.unordered]
        if not isinstance(self.verifier, Cases):
            decides.append(self.verifier.model_dump(mode="json"))
        if self.preamble:
            decides.append({"preamble": self.preamble})
        return digest(*decides)

    @property
    def exercises(self) -> tuple[tuple[str, str], ...]:
        """The data set and the question of each of reasoning-gym's entries by which it is judged."""
        own = (part for part in parts(self.verifier) if isinstance(part, ReasoningGym))
        return tuple((part.dataset, str(part.entry.get("question"))) for part in own)

    @property
    def identities(self) -> tuple[str | tuple[str, str], ...]:
        """What two problems share that are the same: the id, or all that is asked for, whatever the cases are.

        An entry of reasoning-gym is the same under another number, which the same question has with another seed.
        """
        return self.id, (self.prompt, self.entry_point), *self.exercises

    @property
    def called(self) -> str:
        """What a person knows it by: its function's name, or how its prompt begins."""
        return self.entry_point if self.asks_for_code else readable(repr(self.prompt), _SHOWN_CHARS)
