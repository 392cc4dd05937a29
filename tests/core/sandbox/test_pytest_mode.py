"""Tests written by a person judge an answer from a process of their own, and the answer cannot touch what they say."""

from collections.abc import Callable

import pytest

from rlm_core.errors import ProblemError
from rlm_core.problems import Problem
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers import Answer, Bench, Judgement, judge, prepare

from .conftest import PATIENT, each_sandbox

READY: dict[tuple[str, str], Problem] = {}
"""Problems that were prepared, by tests and reference."""


def problem(tests: str, reference: str) -> Problem:
    return Problem.model_validate(
        {"prompt": "See the tests.", "verifier": {"kind": "pytest", "tests": tests}, "reference": reference}
    )


def judged(sandbox: Sandbox, tests: str, reference: str, code: str) -> Judgement:
    """The judgement of some code by tests that the reference passes."""
    key = tests, reference
    if key not in READY:
        [READY[key]] = prepare([problem(tests, reference)], Bench(sandbox))
    return judge(Answer(code, code), READY[key], Bench(sandbox))


def outcomes(judgement: Judgement) -> dict[str, str]:
    return {case.name: case.outcome for case in judgement.cases}


# ------------------------------------------------------------------------------------------------- what tests can use

STACK = """
class Empty(LookupError):
    def __init__(self, wanted):
        super().__init__(f"nothing to {wanted}")
        self.wanted = wanted

class Stack:
    limit = 3
    def __init__(self, items=()):
        self.items = list(items)
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise Empty("pop")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __getitem__(self, place): return self.items[place]
    def __setitem__(self, place, item): self.items[place] = item
    def __delitem__(self, place): del self.items[place]
    def __eq__(self, other): return isinstance(other, Stack) and self.items == other.items
    def __lt__(self, other): return len(self) < len(other)
    def __add__(self, other): return Stack(self.items + list(other))
    def __mul__(self, times): return Stack(self.items * times)
    def __rmul__(self, times): return self * times
    def __iadd__(self, other):
        self.items += list(other)
        return self
    def __hash__(self): return hash(tuple(self.items))
    def __bool__(self): return bool(self.items)
    def __repr__(self): return f"Stack({self.items})"
    def __enter__(self): return self
    def __exit__(self, kind, error, traceback):
        self.items.clear()
        return kind is LookupError
    @property
    def top(self): return self.items[-1]
    @classmethod
    def of(cls, *items): return cls(items)
"""
FUNCTIONS = """
from collections import Counter, deque
from fractions import Fraction
LIMIT = 7
def half(n):
    if n % 2: raise ValueError(f"{n} is odd")
    return n // 2
def third(n): return n / 3
def count_up(n):
    for i in range(n): yield i
def echo():
    while True:
        got = yield
        yield got
def apply_all(functions, value): return [function(value) for function in functions]
def twice(function): return lambda *a: (function(*a), function(*a))
def total(items): return sum(items)
def shout(text):
    print(text.upper())
    return None
def counted(text): return Counter(text)
def turned(items): return deque(reversed(items))
def ratio(a, b): return Fraction(a, b)
def over(): return LIMIT + 1
def give_back(item): return item
class Node:
    def __init__(self, value, following=None): self.value, self.following = value, following
def linked(values):
    node = None
    for value in reversed(values): node = Node(value, node)
    return node
"""

FEATURES = {
    "parametrize": (
        FUNCTIONS,
        """
@pytest.mark.parametrize('n, half', [(2, 1), (-4, -2)], ids=['two', 'minus four'])
def test_it(n, half): assert main.half(n) == half
""",
    ),
    "approx": (
        FUNCTIONS,
        """
def test_it(): assert main.third(1) == pytest.approx(0.3333333)
""",
    ),
    "raises": (
        FUNCTIONS,
        """
def test_it():
    with pytest.raises(ValueError, match='^3 is odd$') as caught: main.half(3)
    assert caught.value.args == ('3 is odd',)
""",
    ),
    "an exception of its own": (
        STACK,
        """
def test_it():
    with pytest.raises(main.Empty) as caught: main.Stack().pop()
    assert caught.value.wanted == 'pop' and isinstance(caught.value, LookupError)
    assert str(caught.value) == 'nothing to pop'
""",
    ),
    "fixtures": (
        STACK,
        """
@pytest.fixture(params=[1, 2])
def stack(request):
    yield main.Stack(range(request.param))
@pytest.fixture
def longer(stack): return stack.push(9)
def test_it(longer): assert longer.pop() == 9
""",
    ),
    "setup methods": (
        STACK,
        """
class TestIt:
    def setup_method(self): self.stack = main.Stack([1])
    def test_one(self): assert self.stack.pop() == 1
    def test_two(self): assert len(self.stack) == 1
""",
    ),
    "unittest": (
        STACK,
        """
import unittest
class TestIt(unittest.TestCase):
    def test_one(self): self.assertEqual(main.Stack([1]).pop(), 1)
    def test_two(self):
        with self.assertRaises(main.Empty): main.Stack().pop()
""",
    ),
    "state": (
        STACK,
        """
def test_it():
    s = main.Stack()
    s.push(1).push(2)
    assert len(s) == 2 and list(s) == [1, 2] and 2 in s
    s.items = [5]
    assert s.top == 5 and s.limit == 3 and main.Stack.of(1, 2).pop() == 2
    s[0] = 6
    del s[0]
    assert not s
""",
    ),
    "operators": (
        STACK,
        """
def test_it():
    a, b = main.Stack([1]), main.Stack([2])
    assert a + b == main.Stack([1, 2]) and a != b and a < main.Stack([1, 2]) and main.Stack([1, 1]) > a
    assert 2 * a == a * 2 == main.Stack([1, 1])
    c = a
    a += b
    assert c is a and len(c) == 2
    assert repr(b) == 'Stack([2])' and len({b, main.Stack([2])}) == 1
    assert isinstance(a, main.Stack) and not isinstance([], main.Stack)
""",
    ),
    "context managers": (
        STACK,
        """
def test_it():
    with main.Stack([1]) as s:
        assert len(s) == 1
        raise LookupError
    assert not s
""",
    ),
    "generators": (
        FUNCTIONS,
        """
import itertools
def test_it():
    assert list(main.count_up(3)) == [0, 1, 2]
    numbers = main.count_up(10**9)
    assert next(numbers) == 0
    assert list(itertools.islice(numbers, 2)) == [1, 2]
    with pytest.raises(StopIteration): next(main.count_up(0))
""",
    ),
    "generators that are sent to": (
        FUNCTIONS,
        """
def test_it():
    e = main.echo()
    next(e)
    assert e.send(3) == 3
    e.close()
""",
    ),
    "callbacks": (
        FUNCTIONS,
        """
def test_it():
    seen = []
    assert main.apply_all([seen.append, lambda n: main.half(n) + 1], 4) == [None, 3]
    assert seen == [4]
    assert main.twice(lambda n: n + 1)(1) == (2, 2)
""",
    ),
    "callbacks that raise": (
        FUNCTIONS,
        """
def bad(n): raise KeyError(n)
def test_it():
    with pytest.raises(KeyError): main.apply_all([bad], 1)
""",
    ),
    "decorators": (
        FUNCTIONS,
        """
@main.twice
def add(a, b): return a + b
def test_it(): assert add(1, 2) == (3, 3)
""",
    ),
    "iterators of the tests": (
        FUNCTIONS,
        """
def test_it(): assert main.total(i for i in (1, 2)) == 3
""",
    ),
    "what it prints": (
        FUNCTIONS,
        r"""
def test_it(capsys):
    main.shout('hey')
    assert capsys.readouterr().out == 'HEY\n'
""",
    ),
    "patched constants": (
        FUNCTIONS,
        """
def test_it(monkeypatch):
    assert main.over() == 8
    monkeypatch.setattr(main, 'LIMIT', 1)
    assert main.over() == 2
def test_undone(): assert main.over() == 8
""",
    ),
    "imports of every kind": (
        FUNCTIONS,
        """
from main import half as h, LIMIT
from main import *
def test_it(): assert h(2) == half(2) == 1 and LIMIT == 7
""",
    ),
    "classes of the standard library": (
        FUNCTIONS,
        """
from collections import Counter, deque
from fractions import Fraction
def test_it():
    assert main.counted('aab') == {'a': 2, 'b': 1} and main.counted('b')['x'] == 0
    assert main.turned([1, 2]) == deque([2, 1]) and main.ratio(2, 4) == Fraction(1, 2)
    assert main.give_back(range(3)) == range(3) and main.give_back(Counter('a')) == Counter('a')
""",
    ),
    "values of every plain type": (
        FUNCTIONS,
        r"""
PLAIN = [None, True, 2**70, -1.5, 1j, 'é', b'\x00', (1, [2]), {3}, frozenset({4}), {'a': {(1, 2): None}}]
@pytest.mark.parametrize('value', PLAIN)
def test_it(value):
    got = main.give_back(value)
    assert got == value and type(got) is type(value)
""",
    ),
    "objects that hold objects": (
        FUNCTIONS,
        """
def test_it():
    node = main.linked([1, 2])
    assert node.following.value == 2
    assert node.following.following is None and main.give_back(node) is node
""",
    ),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_tests_can_use(one: Sandbox, feature: str) -> None:
    """The reference passes through the proxies, and code without any of what is tested fails every test."""
    code, tests = FEATURES[feature]
    tests = "import main\nimport pytest\n" + tests
    assert judged(one, tests, code, code).status == "passed"
    names = [name for name in ("Stack", "half", "give_back") if name in code]
    hollow = "".join(f"def {name}(*a, **k): return object()\n" for name in names)
    assert judged(one, tests, code, hollow).status == "failed"


# ---------------------------------------------------------------------------------------------- what a verdict rests on

REFERENCE = "def solve(n):\n    return n * 2\n"
TESTS = """
import pytest
from main import solve

@pytest.mark.parametrize("n", [1, 2])
def test_double(n):
    assert solve(n) == 2 * n

class TestMore:
    def test_zero(self):
        assert solve(0) == 0
"""
IDS = ("test_double[1]", "test_double[2]", "TestMore::test_zero")


@each_sandbox
def test_every_test_of_a_right_answer_passes(open_kind: Callable[..., Sandbox]) -> None:
    with open_kind(PATIENT) as sandbox:
        [ready] = prepare([problem(TESTS, REFERENCE)], Bench(sandbox))
        judgement = judge(Answer("", "solve = lambda n: n + n"), ready, Bench(sandbox))
    assert ready.test_ids == IDS
    assert ready.trivial_share == pytest.approx(1 / 3)  # of a function that returns 0
    assert (judgement.status, judgement.score, judgement.reason) == ("passed", 1.0, "")
    assert outcomes(judgement) == dict.fromkeys(IDS, "passed")
    assert judgement.usage.cpu_s > 0
    assert judgement.usage.memory_mb > 5


def test_a_wrong_answer_is_told_what_came_and_what_was_expected(one: Sandbox) -> None:
    judgement = judged(one, TESTS, REFERENCE, "def solve(n):\n    print('n is', n)\n    return 2")
    assert (judgement.status, judgement.reason) == ("failed", "2 of 3 tests failed")
    assert judgement.score == pytest.approx(1 / 3)
    assert judgement.cases[1].detail.startswith("assert 2 == (2 * 2)")
    assert judgement.output == "n is 1\nn is 2\nn is 0\n"


def test_what_was_blocked_is_told(one: Sandbox) -> None:
    judgement = judged(one, TESTS, REFERENCE, "def solve(n):\n    open('/etc/hostname')\n    return 2 * n")
    assert judgement.usage.blocked == ("open /etc/hostname",)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os\ndef solve(n):\n    if n == 2: os._exit(0)\n    return 2 * n", "crashed"),
        ("def solve(n):\n    while n == 2: pass\n    return 2 * n", "timeout"),
        ("import time\ndef solve(n):\n    if n == 2: time.sleep(9)\n    return 2 * n", "timeout"),
        ("import os\ndef solve(n):\n    if n == 2: os.write(3, b'\\0\\0\\0\\4null')\n    return 2 * n", "garbage"),
        ("import os\ndef solve(n):\n    if n == 2: os.write(3, b'\\xff' * 9)\n    return 2 * n", "garbage"),
        ("import os\ndef solve(n):\n    if n == 2: os.close(3)\n    return 2 * n", "crashed"),
    ],
)
def test_a_lost_process_costs_the_test_that_lost_it(short: Sandbox, code: str, expected: str) -> None:
    judgement = judged(short, TESTS, REFERENCE, code)
    assert outcomes(judgement) == {IDS[0]: "passed", IDS[1]: expected, IDS[2]: "passed"}
    assert judgement.status == "failed"


def test_processes_are_replaced_only_so_often(one: Sandbox) -> None:
    judgement = judged(one, TESTS, REFERENCE, "import os\ndef solve(n): os._exit(0)")
    assert [case.outcome for case in judgement.cases] == ["crashed", "crashed", "not_run"]  # one replacement
    assert judgement.reason == "its process was lost too often"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def solve(", "does not load: SyntaxError"),
        ("import os; os._exit(0)", "does not load: its process ended with status 0"),
        ("raise SystemExit(0)", "does not load: SystemExit"),
        ("import pytest; pytest.skip('', allow_module_level=True)", "does not load: ModuleNotFoundError"),
        ("def other(n): return n", "the tests cannot be collected: ImportError: cannot import name 'solve'"),
    ],
)
def test_an_answer_that_does_not_load_fails_every_test(one: Sandbox, code: str, reason: str) -> None:
    judgement = judged(one, TESTS, REFERENCE, code)
    assert judgement.reason.startswith(reason)
    assert (judgement.status, judgement.score) == ("failed", 0.0)
    assert set(outcomes(judgement).values()) == {"not_run"}


HOSTILE = {
    "equal to everything": """
class E:
    def __eq__(self, other): return True
def solve(n): return E()
""",
    "in any order": """
class E:
    def __lt__(s, o): return True
    __le__ = __gt__ = __ge__ = __lt__
def solve(n): return E()
""",
    "a number that lies": """
class E(int):
    def __eq__(self, other): return True
def solve(n): return E(0)
""",
    "not equal to nothing": """
class E:
    def __ne__(self, other): return False
def solve(n): return E()
""",
    "raises a skip": """
class Skipped(Exception): pass
Skipped.__module__ = '_pytest.outcomes'
def solve(n): raise Skipped()
""",
    "raises unittest's skip": """
import unittest
def solve(n): raise unittest.SkipTest('no')
""",
    "interrupts": """
def solve(n): raise KeyboardInterrupt
""",
    "exits": """
def solve(n): raise SystemExit(0)
""",
    "stops generating": """
def solve(n): raise GeneratorExit
""",
    "hides as an assertion": """
def solve(n): raise AssertionError
""",
    "a base exception": """
def solve(n): raise BaseException
""",
    "shuts the channel": """
import os
def solve(n):
    for fd in range(3, 64):
        try: os.close(fd)
        except OSError: pass
""",
    "a property that differs": """
class E:
    @property
    def __class__(self): return int
def solve(n): return E()
""",
    "colliding numbers": """
def solve(n): return {i * (2**61 - 1) for i in range(20000)}
""",
    "a fraction by zero": """
import json, os, struct
def solve(n):
    import sys
    f = sys._getframe()
    while 'request' not in f.f_locals: f = f.f_back
    body = json.dumps([f.f_locals['request']['nonce'], 'value', ['p', 'Fraction', '1/0'], '', []]).encode()
    os.write(3, struct.pack('>I', len(body)) + body)
    return 0
""",
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_no_answer_passes_that_does_not_do_the_work(short: Sandbox, attack: str) -> None:
    tests = TESTS.replace("solve(0) == 0", "solve(7) >= 14 and not solve(7) != 14")
    zygotes = short._zygotes.code.pid, short._zygotes.tests.pid
    judgement = judged(short, tests, REFERENCE, HOSTILE[attack])
    assert judgement.status == "failed"
    assert "passed" not in outcomes(judgement).values(), judgement
    assert judged(short, tests, REFERENCE, REFERENCE).status == "passed"
    assert zygotes == (short._zygotes.code.pid, short._zygotes.tests.pid)


def test_an_assertion_that_the_answer_swallows_counts(one: Sandbox) -> None:
    tests = "import main\ndef check(n):\n    assert n == 3\ndef test_it():\n    main.tell(check)\n"
    reference = "def tell(function): function(3)"
    swallows = "def tell(function):\n    try: function(4)\n    except AssertionError: pass"
    judgement = judged(one, tests, reference, swallows)
    assert (judgement.status, judgement.cases[0].outcome) == ("failed", "failed")
    assert "assert 4 == 3" in judgement.cases[0].detail


def test_what_is_expected_is_not_in_the_answers_process(one: Sandbox) -> None:
    """The answer looks through all its frames and objects for a number that only the tests hold."""
    secret = 918_273_645_546
    tests = f"import main\ndef test_it():\n    assert main.find() != {secret}\n    assert main.find() == 0\n"
    search = f"""
import gc, sys
def find():
    frame, seen = sys._getframe(), []
    while frame:
        seen += list(frame.f_locals.values()) + list(frame.f_code.co_consts)
        frame = frame.f_back
    for item in gc.get_objects():
        if isinstance(item, (list, tuple)): seen += item
        if isinstance(item, dict): seen += list(item.values())
    wanted = int('{secret // 7}') * 7 + {secret % 7}
    return next((item for item in seen if type(item) is int and item == wanted), 0)
"""
    assert judged(one, tests, "def find(): return 0", search).status == "passed"


def test_one_answer_leaves_nothing_for_the_next(one: Sandbox) -> None:
    leaves = "import builtins\nbuiltins.found = 1\ndef solve(n): return 2 * n"
    finds = "import builtins\ndef solve(n): return 2 * n if hasattr(builtins, 'found') else 0"
    assert judged(one, TESTS, REFERENCE, leaves).status == "passed"
    assert judged(one, TESTS, REFERENCE, finds).status == "failed"


# ----------------------------------------------------------------------------------------------------- refused problems


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (
            "from main import solve\ndef test_it(): assert solve(1) == 3\n",
            "1 of 1 tests failed; test_it: assert 2 == 3",
        ),
        ("import pytest\n@pytest.mark.skip\ndef test_it(): pass\n", "1 of 1 tests failed; test_it: skipped"),
        ("import pytest\n@pytest.mark.xfail\ndef test_it(): assert 0\n", "1 of 1 tests failed; test_it: xfail"),
        ("import pytest\n@pytest.mark.xfail\ndef test_it(): pass\n", "1 of 1 tests failed; test_it: xfail"),
        ("import pytest\npytest.skip('no', allow_module_level=True)\n", "there are no tests"),
        ("import numpy\ndef test_it(): pass\n", "the tests cannot be collected: ModuleNotFoundError: No module named"),
        ("def test_it(tmp_path): pass\n", "1 of 1 tests failed; test_it: "),
        ("def helper(): pass\n", "there are no tests"),
        ("def test_it(:\n", "the tests cannot be collected: SyntaxError"),
        (
            "from main import solve\ndef test_it():\n    class Own: pass\n    solve(Own())\n",
            "1 of 1 tests failed; test_it: TypeError: cannot be handed to the code under test",
        ),
    ],
)
def test_a_problem_whose_reference_cannot_pass_is_refused_with_the_reason(
    one: Sandbox, tests: str, reason: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        prepare([problem(tests, REFERENCE)], Bench(one))
    text = str(caught.value)
    assert text.startswith(f"answer: its reference does not pass its own tests here: {reason}"), text
    assert "\n" not in text


def without_reference(tests: str) -> Problem:
    return problem(tests, "").model_copy(update={"reference": None})


def test_tests_without_a_reference_are_found_with_a_stand_in_for_what_they_import(one: Sandbox) -> None:
    tests = "import pytest\nfrom main import add\n"
    tests += "@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n    assert add(n, 1) == n + 1\n"
    [ready] = prepare([without_reference(tests)], Bench(one))
    assert ready.test_ids == ("test_it[1]", "test_it[2]")

    def status(code: str) -> str:
        return judge(Answer(code, code), ready, Bench(one)).status

    assert status("def add(a, b): return a + b") == "passed"
    assert status("def add(a, b): return 2") == "failed"


def test_without_a_reference_an_answers_objects_are_asked_nothing_that_holds_a_value_of_the_tests(one: Sandbox) -> None:
    tests = "from main import root\ndef test_it(): assert abs(root(2) - 1.41421) < 1e-3\n"
    [ready] = prepare([without_reference(tests)], Bench(one))
    obliging = "class Any:\n    def __sub__(self, other): return 0.0\ndef root(n): return Any()\n"
    for code, status in (("def root(n): return n ** 0.5", "passed"), (obliging, "failed")):
        assert judge(Answer(code, code), ready, Bench(one)).status == status


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("from main import *\ndef test_it(): pass\n", "need a reference solution"),
        ("def helper(): pass\n", "answer: there are no tests"),
        ("def test_it(:\n", "answer: its tests are no Python"),
    ],
)
def test_tests_that_cannot_be_found_without_a_reference_are_refused(one: Sandbox, tests: str, reason: str) -> None:
    with pytest.raises(ProblemError, match=reason):
        prepare([without_reference(tests)], Bench(one))


def test_tests_that_differ_from_the_known_ones_fail(one: Sandbox) -> None:
    """Tests whose number depends on the answer: the answer must not be able to do without some of them."""
    tests = "import main, pytest\n@pytest.mark.parametrize('n', list(range(main.SIZE)))\ndef test_it(n): pass\n"
    assert judged(one, tests, "SIZE = 3", "SIZE = 3").status == "passed"
    for size in (0, 2, 4):
        judgement = judged(one, tests, "SIZE = 3", f"SIZE = {size}")
        assert (judgement.status, judgement.reason) == ("failed", "the tests that were found are not the known ones")
