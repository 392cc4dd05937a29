"""Objects and messages with which an answer would have been paid for nothing, and honest ones that look like them."""

import json
from functools import cache
from pathlib import Path

import pytest

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox
from rlm_core.sources import read_problems
from rlm_core.verifiers import Answer, Bench, Judgement, judge, prepare

from .conftest import processes_of_session
from .test_pytest_mode import problem

IMPORTS = "import main\nimport pytest\n"


@cache
def prepared(sandbox: Sandbox, tests: str, reference: str) -> Problem:
    return prepare([problem(tests, reference)], Bench(sandbox), trivial=False)[0]


def judged(sandbox: Sandbox, tests: str, reference: str, code: str) -> Judgement:
    """The judgement of some code by tests that the reference passes."""
    return judge(Answer(code, code), prepared(sandbox, tests, reference), Bench(sandbox))


def status(sandbox: Sandbox, tests: str, reference: str, code: str) -> str:
    return judged(sandbox, IMPORTS + tests, reference, code).status


# -------------------------------------------------------------------------------- objects that answer for themselves

OBLIGING = """
class E:
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __mod__ = __xor__ = __sub__
    def __contains__(self, item): return True
    def __eq__(self, other): return True
    def __hash__(self): return 4
    def __len__(self): return 1
    def __iter__(self): return iter(getattr(self, 'learned', ()))
    def difference(self, other):
        self.learned = list(other)
        return ()
    def count(self, item): return 1
    def isclose(self, *a, **k): return True
    def approx(self, *a, **k): return self
    keys = lambda self: []
def f(n): return E()
"""
"""An object that is told what is expected of it, and says that it is that."""

IDIOMS = {
    "a difference": ("n * 2.0", "assert abs(main.f(2) - 4.0) < 1e-6"),
    "a difference the other way round": ("n * 2.0", "assert abs(4.0 - main.f(2)) < 1e-6"),
    "a remainder": ("n * 2", "assert not main.f(2) % 4"),
    "in": ("[n * 2]", "assert 4 in main.f(2)"),
    "a method": ("[n * 2]", "assert main.f(2).count(4) == 1"),
    "almost": ("n * 2.0", "import unittest; unittest.TestCase().assertAlmostEqual(main.f(2), 4.0)"),
    "equal sets": ("{n * 2}", "import unittest; unittest.TestCase().assertSetEqual(main.f(2), {4})"),
    "approximately": ("n * 2.0", "assert main.f(2) == pytest.approx(4.0)"),
    "approximately, the other way round": ("n * 2.0", "assert pytest.approx(4.0) == main.f(2)"),
    "approximately a list": ("[n * 2.0]", "assert pytest.approx([4.0]) == main.f(2)"),
    "approximately a dict": ("{'a': n * 2.0}", "assert pytest.approx({'a': 4.0}) == main.f(2)"),
    "one of a set": ("n * 2", "assert main.f(2) in {4}"),
    "one of a list": ("n * 2", "assert main.f(2) in [4]"),
    "the other way round": ("n * 2", "assert 4 == main.f(2)"),
    "not unequal": ("n * 2", "assert not 4 != main.f(2)"),
    "an element": ("[n * 2]", "assert [4] == [*main.f(2)]"),
    "between": ("n * 2", "assert 3 < main.f(2) <= 4"),
    "sorted": ("[n * 2]", "assert sorted(main.f(2)) == [4]"),
    "text": ("n * 2", "assert f'{main.f(2)}' == '4'"),
    "a type": ("n * 2", "assert isinstance(main.f(2), int)"),
}


def test_an_object_does_not_judge_itself(one: Sandbox) -> None:
    tests = [
        f"def test_{i}(): {check.replace('main.f', f'main.f{i}')}\n" for i, (_, check) in enumerate(IDIOMS.values())
    ]
    reference = [f"def f{i}(n): return {value}\n" for i, (value, _) in enumerate(IDIOMS.values())]
    obliging = OBLIGING + "".join(f"f{i} = f\n" for i in range(len(IDIOMS)))
    judgement = judged(one, IMPORTS + "".join(tests), "".join(reference), obliging)
    outcomes = dict(zip(IDIOMS, (case.outcome for case in judgement.cases), strict=True))
    assert outcomes == dict.fromkeys(IDIOMS, "failed")


AS_GOOD = [
    ("(n, 4)", "r == (2, 4) and (2, 4) == r and r in {(2, 4)} and r < (3,) and r + (1,) == (2, 4, 1)", "Pair(n, 4)"),
    ("(n, 4)", "[r] == [(2, 4)] and r != (2, 5) and 4 in r and r.index(4) == 1 and r[1] == 4", "Pair(n, 4)"),
    ("(1.0, 2.0)", "r == pytest.approx((1.0, 2.0))", "Pair(1.0, 2.0)"),
    ("n", "r == 2 and 2 == r and r < 3 and r >= 2 and r + 1 == 3 and 5 - r == 3 and {r: 1}[2] == 1", "Number.TWO"),
    ("'two'", "r == 'two' and r.upper() == 'TWO' and r + 's' == 'twos' and 'wo' in r", "Text.TWO"),
    ("{'a': n}", "r == {'a': 2} and r['a'] == 2 and 'a' in r and r.get('b') is None", "Map(a=n)"),
    ("[n]", "2 in r and 3 not in r and len(r) == 1 and sorted(r) == [2]", "{n: 1}.keys()"),
    ("[n]", "2 in r", "(each for each in [n])"),
    ("[1.0]", "r == pytest.approx([1.0])", "Sequence()"),
]
"""What the reference returns, what is asked of it, and what an answer may return as well."""
CLASSES = """
import enum
from collections import namedtuple
Pair = namedtuple('Pair', 'a b')
class Number(enum.IntEnum): TWO = 2
class Text(str, enum.Enum): TWO = 'two'
class Map(dict): pass
class Sequence:
    def __len__(self): return 1
    def __getitem__(self, place): return [1.0][place]
"""


def test_an_object_that_is_as_good_as_the_value_passes(one: Sandbox) -> None:
    tests = [f"def test_{i}():\n    r = main.f{i}(2)\n    assert {check}\n" for i, (_, check, _) in enumerate(AS_GOOD)]
    reference = [f"def f{i}(n): return {value}\n" for i, (value, _, _) in enumerate(AS_GOOD)]
    answer = [f"def f{i}(n): return {value}\n" for i, (_, _, value) in enumerate(AS_GOOD)]
    judgement = judged(one, IMPORTS + "".join(tests), "".join(reference), CLASSES + "".join(answer))
    assert [(case.outcome, case.detail) for case in judgement.cases] == [("passed", "")] * len(AS_GOOD)


def test_a_number_of_an_own_class_stays_the_number_that_it_was_at_first(one: Sandbox) -> None:
    """By a change to what serves it, it would be another in each comparison."""
    sweeps = """
import gc
class E(int): pass
def f(n): return E(0)
tried = iter(range(9))
for each in gc.get_objects():
    if isinstance(each, dict) and 'plain' in each and 'getitem' in each: each['plain'] = lambda value: (next(tried),)
"""
    tests = "def test_it():\n    r = main.f(2)\n    assert r == 1 or r == 2 or r == 3 or r == 4\n"
    assert status(one, tests, "def f(n): return n * 2", sweeps) == "failed"


def test_what_the_references_objects_are_asked_an_answers_are_asked_too(one: Sandbox) -> None:
    code = """
class V:
    def __init__(self, x): self.x = x
    def __add__(self, other): return V(self.x + getattr(other, 'x', other))
    __radd__ = __add__
    def __eq__(self, other): return isinstance(other, V) and self.x == other.x
    def __contains__(self, item): return item == self.x
    def close_to(self, number): return abs(self.x - number) < 1
"""
    tests = "def test_it():\n    v = 1 + main.V(2) + 3\n    assert v == main.V(6) and 6 in v and v.close_to(6.5)\n"
    ready = prepared(one, IMPORTS + tests, code)
    assert ready.test_questions == (".close_to", "add", "contains")
    assert judge(Answer(code, code), ready, Bench(one)).status == "passed"


def test_a_problem_file_cannot_say_what_may_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    file.write_text(
        json.dumps({**problem("def test_it(): pass\n", "").model_dump(mode="json"), "test_questions": ["sub"]})
    )
    assert read_problems(str(file))[0].test_questions == ()


# --------------------------------------------------------------------------------------------- exceptions let through

BLOCK = """
class C:
    x = {x}
    def __enter__(self): return self
    def __exit__(self, *error): return {swallows}
"""


@pytest.mark.parametrize("x", ["4", "property(lambda self: 1 / 0)"])
def test_a_context_manager_lets_no_failure_of_the_tests_pass(one: Sandbox, x: str) -> None:
    tests = "def test_it():\n    with main.C() as c: assert c.x == 5\n"
    assert status(one, tests, BLOCK.format(x=5, swallows=None), BLOCK.format(x=x, swallows=True)) == "failed"


def test_a_context_manager_lets_pass_what_the_references_does(one: Sandbox) -> None:
    tests = "def test_it():\n    with main.ignore(KeyError): {}[1]\n    with main.ignore(): pass\n"
    own = """
class ignore:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): return self
    def __exit__(self, kind, error, traceback): return kind is not None and issubclass(kind, self.kinds)
"""
    reference = "from contextlib import suppress as ignore"
    assert status(one, tests, reference, own) == "passed"
    assert status(one, tests, reference, own.replace("return kind", "return not kind")) == "failed"


CHECK = "def check(n):\n    assert n == 3\n"


@pytest.mark.parametrize(
    "tests",
    [
        "@pytest.fixture\ndef it():\n    main.tell(check)\ndef test_it(it): pass\n",
        "@pytest.fixture\ndef it():\n    yield\n    main.tell(check)\ndef test_it(it): pass\n",
    ],
    ids=["setup", "teardown"],
)
def test_an_assertion_that_the_answer_swallows_counts_in_fixtures(one: Sandbox, tests: str) -> None:
    swallows = "def tell(function):\n    try: function(4)\n    except AssertionError: pass"
    assert status(one, CHECK + tests, "def tell(function): function(3)", swallows) == "failed"


def test_an_assertion_counts_in_its_own_test_alone(one: Sandbox) -> None:
    tests = IMPORTS + CHECK + "def test_a(): main.tell(check)\ndef test_b(): assert main.two() == 2\n"
    code = "def tell(function): function({})\ndef two(): return 2"
    judgement = judged(one, tests, code.format(3), code.format(4))
    assert [case.outcome for case in judgement.cases] == ["failed", "passed"]


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("with pytest.raises(TypeError): main.f(object())", "cannot be handed to the code under test"),
        ("with pytest.raises(TypeError):\n        class Own(main.C): pass", "cannot be derived from here"),
    ],
)
def test_what_cannot_be_done_here_is_not_taken_for_the_answers_exception(one: Sandbox, tests: str, reason: str) -> None:
    reference = "class C: pass\ndef f(item): raise TypeError"
    with pytest.raises(ProblemError, match=reason):
        prepared(one, f"{IMPORTS}def test_it():\n    {tests}\n", reference)


# ------------------------------------------------------------------------------------------------- names of the tests


@pytest.mark.parametrize(
    ("imports", "check", "shadow"),
    [
        ("", "abs(f(2) - 4.0) < 1", "def abs(x): return 0\ndef f(n): return 0.0"),
        ("", "sorted([f(2)]) == [4.0]", "def sorted(x): return [4.0]\ndef f(n): return 0.0"),
        ("import math", "math.isclose(f(2), 4.0)", OBLIGING + "math = E()"),
        ("import pytest", "f(2) == pytest.approx(4.0)", OBLIGING + "pytest = E()"),
    ],
)
def test_importing_everything_takes_nothing_that_the_tests_have(
    one: Sandbox, imports: str, check: str, shadow: str
) -> None:
    tests = f"{imports}\nfrom main import *\ndef test_it(): assert {check}\n"
    reference = "import math\nimport json as pytest\ndef f(n): return n * 2.0"
    honest = "def abs(x): return 0\ndef test_mine(): pass\ndef f(n): return n + n + 0.0"
    assert judged(one, tests, reference, honest).status == "passed"
    assert judged(one, tests, reference, shadow).status == "failed"


def test_what_an_answer_calls_its_own_does_not_name_a_test(one: Sandbox) -> None:
    tests = "@pytest.mark.parametrize('f', [main.a, main.b])\ndef test_it(f): assert f(1) == 1\n"
    reference = "def a(n): return n\ndef b(n): return n"
    assert status(one, tests, reference, "a = b = lambda n: n") == "passed"


# ---------------------------------------------------------------------------------------------------- honest answers

HONEST = {
    "a named argument of any name": (
        "def f(**names): return sum(names.values())",
        "assert main.f(operation=1, function=2, proxy=3, self=4, name=5, kind=6, number=7) == 28",
    ),
    "a part of a sequence of its own": (
        "class S:\n    def __getitem__(self, place): return [1, 2, 3][place]",
        "assert main.S()[1:] == [2, 3] and main.S()[::-1] == [3, 2, 1]",
    ),
    "builtin classes": (
        "def f(item, kind): return isinstance(item, kind), type(item), kind(item)",
        "assert main.f(3, int) == (True, int, 3) and main.f(3, str) == (False, int, '3')",
    ),
    "dates": (
        "from datetime import timedelta\ndef f(day): return day + timedelta(1)",
        """
    from datetime import date, datetime, timedelta
    assert main.f(date(2024, 2, 28)) == date(2024, 2, 29)
    assert main.f(datetime(2024, 1, 1, 5)) - datetime(2024, 1, 1) == timedelta(1, 18000)""",
    ),
    "the name of what it decorates": (
        "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(*a): return f.__name__, f(*a)\n    return g",
        """
    @main.d
    def add(a, b): 'Adds.'; return a + b
    assert add(1, 2) == ('add', 3) and add.__name__ == 'add' and add.__doc__ == 'Adds.'""",
    ),
    "an exception of two kinds": (
        "class E(KeyError, ValueError): pass\ndef f(): raise E('x')",
        """
    for kind in (main.E, KeyError, ValueError, LookupError):
        with pytest.raises(kind): main.f()""",
    ),
    "exceptions derived from each other": (
        "class A(Exception): pass\nclass B(Exception): pass\nclass C(A, B): pass\ndef f(): raise C('x')",
        """
    for kind in (main.A, main.B, main.C):
        with pytest.raises(kind): main.f()
    assert not issubclass(main.A, main.B) and issubclass(main.C, main.B)""",
    ),
    "a chain of exceptions": (
        "def f():\n    try: {}[1]\n    except KeyError as error: raise ValueError('no') from error",
        """
    with pytest.raises(ValueError) as caught: main.f()
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.__cause__.args == (1,)""",
    ),
    "a group of exceptions": (
        "def f(): raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])",
        """
    with pytest.raises(ExceptionGroup, match='two') as caught: main.f()
    assert [str(each) for each in caught.value.exceptions] == ['a', "'b'"] and caught.value.message == 'two'""",
    ),
    "exceptions of functions of the tests": (
        """
class Own(Exception):
    def __init__(self, code): self.code = code
def f(function, *kinds):
    while True:
        try: return function()
        except kinds: pass""",
        """
    class Ours(ValueError): pass
    errors = [ValueError('1'), Ours('2'), main.Own('3')]
    def function():
        if errors: raise errors.pop()
        return 5
    assert main.f(function, Ours, main.Own) == 5""",
    ),
}


@pytest.mark.parametrize("style", HONEST)
def test_an_honest_answer_may_have(one: Sandbox, style: str) -> None:
    code, body = HONEST[style]
    assert prepared(one, f"{IMPORTS}def test_it():\n    {body.strip()}\n", code).test_ids == ("test_it",)


def test_every_part_of_a_test_counts(one: Sandbox) -> None:
    for tests in (
        "import unittest, main\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        for n in (1, 2):\n"
        "            with self.subTest(n=n): self.assertEqual(main.f(n), n * 2)\n",
        "import main\ndef test_it(subtests):\n    for n in (1, 2):\n"
        "        with subtests.test(n=n): assert main.f(n) == n * 2\n",
    ):
        reference = "def f(n): return n * 2"
        assert judged(one, tests, reference, "def f(n): return 2").status == "failed"


# ------------------------------------------------------------------------------------------------------------ messages

FORGER = """
import json, os, struct, sys
def f(n):
    frame = sys._getframe()
    while 'request' not in frame.f_locals: frame = frame.f_back
    nonce = json.dumps(frame.f_locals['request']['nonce'])
    for message in {messages!r}:
        body = message.replace('NONCE', nonce).encode()
        os.write(3, struct.pack('>I', len(body)) + body)
    return 0
"""
LATE = '["l"' + ', ["h", 1]' * 50_000 + "]"
MESSAGES = {
    "a cut frame": ["[NONCE"],
    "a question to nobody": ['[NONCE, "callback", [99, "call", ["l"], ["d"]], "", []]'],
    "a question with a bad number": ['[NONCE, "callback", ["x", "call", ["l"], ["d"]], "", []]'],
    "a question of no kind": ['[NONCE, "callback", [0, [], ["l"], ["d"]], "", []]'],
    "an object with a huge number": ['[NONCE, "value", ["h", 1' + "0" * 400 + '], "", []]'],
    "an object with no number": ['[NONCE, "value", ["h", null], "", []]'],
    "many objects": [f'[NONCE, "value", {LATE}, "", []]'],
    "keys that collide": ['[NONCE, "value", ["d", ["h", 0], 1, ["h", 0], 2], "", []]'],
    "a class without bases": ['[NONCE, "raised", [["E", 1, []], "", null, 1, null, []], "", []]'],
    "a class called by NUL": [
        '[NONCE, "raised", [["\\u0000", 1, [["ValueError", null, []]]], "", null, 1, null, []], "", []]'
    ],
    "an interrupt": ['[NONCE, "raised", [["KeyboardInterrupt", null, []], "", null, 1, null, []], "", []]'],
    "an empty group": ['[NONCE, "raised", [["ExceptionGroup", null, []], "", null, 1, null, []], "", []]'],
    "a class as a chain": ['[NONCE, "raised", ' + '["E", 1, [' * 3000 + "]]" * 3000 + ', "", []]'],
    "text that UTF-8 cannot hold": ['[NONCE, "value", 0, "\\udc00\\u0000", ["\\udc00", 1, {"a": 1.5}]]'],
    "too much output": ['[NONCE, "value", 0, "' + "x" * 3_000_000 + '", ["' + "y" * 900_000 + '"]]'],
    "a number out of bounds": ['[NONCE, "value", ["p", "Decimal", "1E+99999999999999999999"], "", []]'],
    "no date": ['[NONCE, "value", ["p", "date", "2024-02-30"], "", []]'],
    "too long a time": ['[NONCE, "value", ["p", "timedelta", ["l", 999999999999, 0, 0]], "", []]'],
    "no class": ['[NONCE, "value", ["p", "type", ["l"]], "", []]'],
    "two answers": ['[NONCE, "value", 0, "", []]', '[NONCE, "value", 4, "", []]'],
}
TWICE = "def test_it():\n    assert main.f(1) == 2\ndef test_again():\n    assert main.f(2) == 4\n"


@pytest.mark.parametrize("forged", MESSAGES)
def test_a_forged_message_costs_the_answer_and_nobody_else(one: Sandbox, forged: str) -> None:
    zygotes = one._zygotes.code.pid, one._zygotes.tests.pid
    before = [processes_of_session(zygote) for zygote in zygotes]
    judgement = judged(one, IMPORTS + TWICE, "def f(n): return n * 2", FORGER.format(messages=MESSAGES[forged]))
    assert (judgement.status, judgement.score) == ("failed", 0.0)
    assert len(judgement.model_dump_json()) < 200_000
    assert zygotes == (one._zygotes.code.pid, one._zygotes.tests.pid)
    assert before == [processes_of_session(zygote) for zygote in zygotes]


def test_questions_without_end_are_ended(one: Sandbox) -> None:
    asks = "import sys\nsys.setrecursionlimit(10**6)\ndef f(function): return function(1)"
    tests = "def test_it():\n    def ask(n): return main.f(ask)\n    assert main.f(ask) == 4\n"
    assert status(one, tests, "def f(function): return 4", asks) == "failed"


def test_notes_of_what_was_blocked_are_few(one: Sandbox) -> None:
    code = """
import gc
def f(n):
    for each in gc.get_objects():
        if type(each).__name__ == '_Watch': each._new = [f'{n} {i} ' + 'x' * 9999 for i in range(200)]
    return n * 2
"""
    judgement = judged(one, IMPORTS + TWICE, "def f(n): return n * 2", code)
    assert judgement.status == "passed"
    assert len(judgement.usage.blocked) == 20
    assert max(map(len, judgement.usage.blocked)) <= 200
