"""Programs in words. The same program can be said in several ways; a seed chooses one."""

from dataclasses import dataclass

import numpy as np

from rlm_core.request import request
from rlm_core.sources.procedural.compose import Link, Program
from rlm_core.sources.procedural.primitives import LISTS, Argument, Kind, Start

_AT_ONCE = 0.6
"""Share of the longer programs that could be one noun phrase and are."""


@dataclass(frozen=True)
class _Phrase:
    """What a value is called: as one thing, and for lists its elements, the same without "the", and where they are."""

    whole: str
    elements: str = ""
    bare: str = ""
    place: str = ""

    @classmethod
    def of_list(cls, whole: str, elements: str, place: str) -> "_Phrase":
        return cls(whole, elements, elements.removeprefix("the "), place)


_RESULTS: dict[Kind, _Phrase] = {
    "int": _Phrase("the result"),
    "ints": _Phrase(
        "the resulting list", "the resulting numbers", "numbers in the resulting list", "in the resulting list"
    ),
    "text": _Phrase("the resulting string"),
    "words": _Phrase(
        "the resulting list", "the resulting words", "words in the resulting list", "in the resulting list"
    ),
}
"""What the value of an earlier step is called when steps are told one after the other."""


def prompt(program: Program, rng: np.random.Generator) -> str:
    """The request for a program: as one noun phrase where that is clear, or step by step."""
    names = ", ".join(argument.name for argument in program.arguments)
    words = _Words(rng)
    at_once = words.at_once(program) if _is_clear(program) else ""
    if len(program.links) > 1 and (at_once.count(" among ") > 1 or rng.random() >= _AT_ONCE):
        at_once = ""
    asked = f"returns {at_once}" if at_once else words.step_by_step(program)
    return request(f"{program.entry_point}({names})", f"{asked}.")


def _is_clear(program: Program) -> bool:
    """Whether one noun phrase leaves no doubt which words belong to which step."""
    if program.start.verb:
        return False
    return len(program.links) == 1 or not any(link.step.trailing for link in program.links)


class _Words:
    """Chooses among the ways of saying each part."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._quotes = "`" if rng.random() < 0.5 else ""

    def at_once(self, program: Program) -> str:
        """ "the sum of the even numbers in the list `numbers`" """
        phrase = self._start(program.start)
        for link in program.links:
            phrase = self._noun(link, phrase, alone=len(program.links) == len(program.start.arguments) == 1)
        return phrase.whole

    def step_by_step(self, program: Program) -> str:
        """ "squares each of the numbers in the list `numbers` and then returns the sum of the resulting numbers" """
        *earlier, last = program.links
        phrase, done = self._begun(program.start)
        for link in earlier:
            done.append(self._filled(link, link.step.verb, phrase))
            phrase = _RESULTS[link.step.gives]
        returned = self._noun(last, phrase).whole
        if len(done) == 1:
            return f"{done[0]} and then returns {returned}"
        first = ", then ".join(each.removesuffix(",") for each in done)
        return f"first {first}, and finally returns {returned}"

    def _begun(self, start: Start) -> tuple[_Phrase, list[str]]:
        """What the first step works on, and what is done before it."""
        if not start.verb:
            return self._start(start), []
        return _RESULTS[start.gives], [self._one_of(start.verb).format(**self._arguments(start))]

    def _start(self, start: Start) -> _Phrase:
        names = self._arguments(start)
        whole = self._one_of(start.whole).format(**names)
        if start.gives not in LISTS:
            return _Phrase(whole)
        elements = self._one_of(start.elements).format(**names)
        return _Phrase.of_list(whole, elements, f"in {whole}")

    def _arguments(self, start: Start) -> dict[str, str]:
        return {key: self._named(each) for key, each in zip("ab", start.arguments, strict=False)}

    def _noun(self, link: Link, phrase: _Phrase, alone: bool = False) -> _Phrase:
        words = self._filled(link, link.step.noun + (link.step.alone if alone else ()), phrase)
        if link.step.gives not in LISTS:
            return _Phrase(words)
        return _Phrase.of_list(f"a list of {words}", words, f"among {words}")

    def _filled(self, link: Link, texts: tuple[str, ...], phrase: _Phrase) -> str:
        parameter = link.parameter
        fields = {
            "x": phrase.whole,
            "xs": phrase.elements,
            "bare": phrase.bare,
            "in": phrase.place,
            "k": self._named(parameter) if isinstance(parameter, Argument) else str(parameter),
        }
        return self._one_of(texts).format(**fields)

    def _named(self, argument: Argument) -> str:
        return f"{self._quotes}{argument.name}{self._quotes}"

    def _one_of(self, texts: tuple[str, ...]) -> str:
        return texts[self._rng.integers(len(texts))]
