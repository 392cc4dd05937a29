"""Verifiers that look at the answer's text: regular expression, exact text, last number, JSON by a schema.

All of it is data, whatever it holds: nothing is evaluated, nothing raises because of it, and a text that takes too long
or is too large is a failed answer with that reason.
"""

import math
import re
from collections import deque

from rlm_core.problems import Exact, JsonSchema, Numeric, Problem, Regex
from rlm_core.sandbox.text import readable
from rlm_core.verifiers.judgement import Answer, Bench, Judgement
from rlm_core.verifiers.scorer import LibraryVerifier

LONGEST_CHARS = 1_000_000
"""Longest text that is looked at: more than any model says at once."""
_TOO_LONG = f"the answer is longer than {LONGEST_CHARS} characters"

# What `numeric` takes for a number; docs/verifiers.md says the same in words.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_SIGN = r"(?:(?<![\w)\]])[-+\u2212])?"  # after an operand it is an operator
_START = r"(?<!\w)(?<!\d\.)"  # neither within a word, as in x2, nor within a version, as in 1.2.3
# Possessive, so that a million digits are not tried in a million ways.
_FRACTION = r"(?<!/)(?<!/ )(?P<above>\d++) ?/ ?(?P<below>\d++)(?![.,]?\d| ?/)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d+)?|(?<!\.)\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(f"{_SIGN}{_START}(?:{_FRACTION}|{_DECIMAL})", re.ASCII)


def judge_regex(verifier: Regex, answer: Answer, _problem: Problem, bench: Bench) -> Judgement:
    """Search the text; with `full`, match all of it, white space around it aside."""
    if len(answer.text) > LONGEST_CHARS:
        return Judgement.binary(_TOO_LONG)
    compiled = verifier.compiled
    try:
        if verifier.full:
            found = compiled.fullmatch(answer.text.strip(), timeout=bench.limits.case_s, concurrent=True)
        else:
            found = compiled.search(answer.text, timeout=bench.limits.case_s, concurrent=True)
    except TimeoutError:
        # Its clock is the CPU time of this process, in which other threads may have been at work.
        return Judgement.graded(0.0, 1.0, f"the expression was not done after {bench.limits.case_s:g} s", late=True)
    except MemoryError:
        return Judgement.binary("the expression needs too much memory")
    return Judgement.binary("" if found else "the text does not match")


def judge_exact(verifier: Exact, answer: Answer, _problem: Problem, _bench: Bench) -> Judgement:
    """Compare the text with the expected one, white space around both aside."""
    got, wanted = answer.text.strip(), verifier.expected.strip()
    same = got.casefold() == wanted.casefold() if verifier.ignore_case else got == wanted
    return Judgement.binary("" if same else f"the text is {readable(repr(got[:200]))}")


def judge_numeric(verifier: Numeric, answer: Answer, _problem: Problem, _bench: Bench) -> Judgement:
    """Compare the last number in the text with the expected one."""
    if len(answer.text) > LONGEST_CHARS:
        return Judgement.binary(_TOO_LONG)
    number = last_number(answer.text)
    if number is None:
        return Judgement.binary("no number in the answer")
    tolerance = verifier.tolerance
    # An overflow is infinite and close to nothing; what is expected never is.
    if math.isfinite(number) and math.isclose(number, verifier.expected, rel_tol=tolerance, abs_tol=tolerance):
        return Judgement.binary("")
    return Judgement.binary(f"the last number is {number!r}")


def last_number(text: str) -> float | None:
    """The last number in a text, or None: a decimal with sign and exponent, or two whole numbers with a stroke between.

    Infinite when it is too large for a float, or a division by 0.
    """
    last = deque(_NUMBER.finditer(text), maxlen=1)
    if not last:
        return None
    found = last[0]
    written = found[0].replace("\u2212", "-").replace(",", "")
    if found["above"] is None:
        return float(written)
    above, below = float(found["above"]), float(found["below"])
    quotient = above / below if below and math.isfinite(below) else math.inf
    return -quotient if written.startswith("-") else quotient


def judge_json_schema(verifier: JsonSchema, answer: Answer, _problem: Problem, bench: Bench) -> Judgement:
    """Validate the JSON in the text, in a process that can be stopped: a schema may ask for endless work."""
    return judged_by_scorer(verifier, answer, bench, pass_at=1.0)


def judged_by_scorer(verifier: LibraryVerifier, answer: Answer, bench: Bench, pass_at: float) -> Judgement:
    """Have the text judged in the scorer's process."""
    if len(answer.text) > LONGEST_CHARS:
        return Judgement.binary(_TOO_LONG)
    scored = bench.scorer.score(verifier, answer.text)
    return Judgement.graded(scored.score, pass_at, scored.reason, scored.late)
