"""Value mode: what passes, what fails and why, and how time is judged."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rlm_core.errors import ProblemError
from rlm_core.problems import Case, Problem
from rlm_core.sandbox import Sandbox
from rlm_core.verifiers.cases import NoResult, Raised, Value, judge_cases, run_cases

from .conftest import PATIENT, each_sandbox, limits_of_parent, processes_of_session

LIMITS = PATIENT
pytestmark = each_sandbox


def problem(*cases: Case, entry_point: str = "f", **fields: Any) -> Problem:
    return Problem(prompt="?", entry_point=entry_point, cases=cases, **fields)


def expects(value: Any, *arguments: Any) -> Case:
    return Case(input=list(arguments), expected=value)


def raises(name: str, *arguments: Any) -> Case:
    return Case(input=list(arguments), raises=name)


# ------------------------------------------------------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("code", "case"),
    [
        ("def f(a, b): return a + b", expects(3, 1, 2)),
        ("f = lambda xs: sorted(xs)", expects([1, 2], [2, 1])),
        ("from math import gcd as f", expects(6, 12, 18)),
        ("class f:\n    def __new__(cls, x): return x * 2", expects(4, 2)),
        ("import functools\n@functools.cache\ndef f(n): return n", expects(1, 1)),
        ("def f(d): return {**d, 'b': (1, 2.5)}", expects({"a": None, "b": [1, 2.5]}, {"a": None})),
        ("def f(): return divmod(7, 2)", expects([3, 1])),
        ("def f(): pass", expects(None)),
        ("def f(n): return 2 ** n", expects(2**200, 200)),
        ("def f(): return 'ä\\ud800€'", expects("ä\ud800€")),
        ("def f(): raise KeyError('x')", raises("KeyError")),
        ("def f(): raise KeyError('x')", raises("LookupError")),
        ("class Mine(ValueError): pass\ndef f(): raise Mine", raises("ValueError")),
        ("def f(): raise SystemExit", raises("SystemExit")),
        ("def f(x): return x / 0", raises("ZeroDivisionError", 1)),
    ],
)
def test_right_answers_pass(sandbox: Sandbox, code: str, case: Case) -> None:
    judgement = judge_cases(sandbox, code, problem(case))
    assert judgement.status == "passed", judgement
    assert judgement.reason == ""
    assert [result.outcome for result in judgement.cases] == ["passed"]


@pytest.mark.parametrize(
    ("code", "case", "outcome", "detail"),
    [
        ("def f(): return 24", expects(120), "failed", "returned 24"),
        ("def f(): return {1, 2}", expects([1, 2]), "failed", "returned {1, 2}"),
        ("def f(): return (x for x in ())", expects([]), "failed", "an object of type generator"),
        ("def f(): return 1", raises("ValueError"), "failed", "returned 1"),
        ("def f(): raise TypeError('bad\\n')", expects(1), "raised", "raised TypeError: bad\\n"),
        ("def f(): raise LookupError", raises("KeyError"), "raised", "raised LookupError"),
        ("class ValueError(Exception): pass\ndef f(): raise ValueError", raises("ValueError"), "raised", "ValueError"),
        ("def f(): pass", expects(1, 5), "raised", "raised TypeError: f() takes 0 positional arguments"),
        ("import os\ndef f(): os.abort()", expects(1), "crashed", "its process was ended by SIGABRT"),
        ("def f():\n    while True: pass", expects(1), "timeout", "it took too long"),
    ],
)
def test_wrong_answers_fail_and_say_what_came(
    sandbox: Sandbox, code: str, case: Case, outcome: str, detail: str
) -> None:
    judgement = judge_cases(sandbox, code, problem(case))
    assert (judgement.status, judgement.reason) == ("failed", "1 of 1 cases failed")
    assert judgement.cases[0].outcome == outcome
    assert detail in judgement.cases[0].detail


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(x) return x", "does not load: SyntaxError: expected ':' (main.py, line 1)"),
        ("import nothing_like_it", "does not load: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("import numpy", "does not load: ModuleNotFoundError: No module named 'numpy'"),
        ("def g(x): return x", "no function named f"),
        ("f = 5", "no function named f"),
        ("", "no function named f"),
        ("import os; os._exit(7)", "does not load: its process ended with status 7"),
    ],
)
def test_code_that_does_not_load_says_why(sandbox: Sandbox, code: str, reason: str) -> None:
    judgement = judge_cases(sandbox, code, problem(expects(1), expects(2)))
    assert (judgement.status, judgement.reason) == ("failed", reason)
    assert [result.outcome for result in judgement.cases] == ["not_run", "not_run"]
    assert judgement.usage.blocked == (), "Python's own search for the line of a SyntaxError is no attempt of the code"


def test_every_case_gets_its_own_input(sandbox: Sandbox) -> None:
    code = "seen = []\ndef f(xs):\n    seen.append(xs)\n    xs.append(0)\n    return [len(xs), xs is seen[0]]"
    shared = [1, 2]
    judgement = judge_cases(sandbox, code, problem(expects([3, True], shared), expects([3, False], shared)))
    assert judgement.status == "passed"


def test_a_lost_child_is_replaced_so_often_and_no_more(sandbox: Sandbox) -> None:
    code = "import os\ndef f(n): return n if n % 2 else os._exit(0)"
    cases = [expects(n, n) for n in (1, 2, 3, 4, 5)]
    outcomes = [result.outcome for result in judge_cases(sandbox, code, problem(*cases)).cases]
    assert sandbox.limits.respawns == 1
    assert outcomes == ["passed", "crashed", "passed", "crashed", "not_run"]


def test_tolerance_and_order_are_the_problems(sandbox: Sandbox) -> None:
    code = "def f(): return [0.1 + 0.2, 1.0]"
    case = expects([1.0, 0.3])
    assert judge_cases(sandbox, code, problem(case)).status == "failed"
    assert judge_cases(sandbox, code, problem(case, float_tolerance=1e-9)).status == "failed"
    assert judge_cases(sandbox, code, problem(case, unordered=True)).status == "failed"
    assert judge_cases(sandbox, code, problem(case, unordered=True, float_tolerance=1e-9)).status == "passed"


def test_output_is_kept_up_to_the_limit(open_kind: Callable[..., Sandbox]) -> None:
    code = "import sys\nprint('loading')\ndef f(n):\n    print('x' * n, '\\ud800', file=sys.stderr)\n    return n"
    with open_kind(PATIENT.model_copy(update={"output_kb": 1})) as sandbox:
        judgement = judge_cases(sandbox, code, problem(expects(3, 3), expects(5000, 5000)))
    assert judgement.status == "passed"
    assert judgement.output.startswith("loading\nxxx \\ud800\nxxxxx")
    assert len(judgement.output) <= 1024


def test_nothing_depends_on_chance(sandbox: Sandbox) -> None:
    code = "import random\ndef f(): return [random.random(), hash('a'), list({'a', 'b', 'c', 'd'})]"
    first = run_cases(sandbox, code, "f", [[], []])
    assert isinstance(first[0], Value)
    assert first[0] != first[1]
    assert run_cases(sandbox, code, "f", [[], []]) == first


def test_the_hash_seed_can_be_chosen(open_kind: Callable[..., Sandbox]) -> None:
    orders = []
    for seed in (1, 2):
        with open_kind(PATIENT, hash_seed=seed) as sandbox:
            orders.append(run_cases(sandbox, "def f(): return hash('abc')", "f", [[]]))
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (expects([0] * 300_000), "case 2: its expected value has more than 200000 parts"),
        (expects(0, "x" * (5 << 20)), "case 2: its input is larger than 4 MB"),
    ],
)
def test_a_case_that_cannot_be_judged_is_the_problems_fault(sandbox: Sandbox, case: Case, why: str) -> None:
    with pytest.raises(ProblemError, match=why):
        judge_cases(sandbox, "def f(*a): return 0", problem(expects(0), case))


# ---------------------------------------------------------------------------------------------------------------- time


def test_loading_has_a_limit_too(sandbox: Sandbox) -> None:
    with limits_of_parent(sandbox, load_s=0.1, patience=2):
        for code in ("import time; time.sleep(60)", "while True: pass"):
            assert judge_cases(sandbox, code, problem(expects(1))).reason == "does not load: it took too long"


def test_a_busy_machine_is_not_the_codes_fault(sandbox: Sandbox) -> None:
    """The child is stopped for longer than its limit and goes on afterwards: it had no processor in between."""
    code = "import time\ndef f():\n    while time.process_time() < 0.06: pass\n    return 1"
    zygote = sandbox._zygotes.code.pid
    before = processes_of_session(zygote)

    def stop_it_for_a_while() -> None:
        while not (children := processes_of_session(zygote) - before):
            time.sleep(0.005)
        [child] = children
        time.sleep(0.02)
        os.kill(child, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(child, signal.SIGCONT)

    thread = threading.Thread(target=stop_it_for_a_while)
    thread.start()
    started = time.monotonic()
    judgement = judge_cases(sandbox, code, problem(expects(1)))
    thread.join()
    assert judgement.status == "passed", judgement
    assert time.monotonic() - started > 2 * sandbox.limits.case_s


def test_code_that_computes_is_stopped_by_its_cpu_time(sandbox: Sandbox) -> None:
    started = time.monotonic()
    judgement = judge_cases(sandbox, "def f():\n    while True: pass", problem(expects(1)))
    took = time.monotonic() - started
    assert judgement.cases[0].outcome == "timeout"
    assert took < 0.75 * sandbox.limits.case_s * sandbox.limits.patience


def test_code_that_sleeps_is_waited_for_only_once(sandbox: Sandbox) -> None:
    with limits_of_parent(sandbox, patience=6, respawns=2):
        started = time.monotonic()
        judgement = judge_cases(sandbox, "import time\ndef f(): time.sleep(9)", problem(*[expects(1)] * 3))
        took = time.monotonic() - started
    assert [result.outcome for result in judgement.cases] == ["timeout"] * 3
    assert took < 2 * 6 * sandbox.limits.case_s


def test_all_cases_together_have_a_limit(sandbox: Sandbox) -> None:
    with limits_of_parent(sandbox, total_s=1):
        code = "import time\ndef f(): time.sleep(0.2)"
        judgement = judge_cases(sandbox, code, problem(*[expects(None)] * 8))
    outcomes = [result.outcome for result in judgement.cases]
    assert outcomes[0] == "passed"
    assert outcomes[-1] == "not_run"


# ---------------------------------------------------------------------------------------------------------- references


def test_results_of_a_reference(sandbox: Sandbox) -> None:
    code = (
        "usable = [1, 2.5, 'a', None, (True, {'k': [1]})]\n"
        "unusable = [{1}, float('nan'), {1: 2}, 2 ** 5000, b'x', object]\n"
        "def f(x): return usable[x] if x < 100 else unusable[x - 100]\n"
    )
    results = run_cases(sandbox, code, "f", [[index] for index in range(6)])
    assert results[:5] == [Value(value=value) for value in (1, 2.5, "a", None, [True, {"k": [1]}])]
    ancestry = ("IndexError", "LookupError", "Exception", "BaseException")
    assert results[5] == Raised(ancestry=ancestry, message="list index out of range")
    others = run_cases(sandbox, code, "f", [[index] for index in range(100, 106)])
    assert [type(result) for result in others] == [NoResult] * 6


def test_a_reference_that_comes_to_nothing_says_why(sandbox: Sandbox) -> None:
    assert (
        run_cases(sandbox, "def f(:", "f", [[1], [2]])
        == [NoResult(reason="does not load: SyntaxError: invalid syntax (main.py, line 1)")] * 2
    )
    code = "import os\ndef f(n): os._exit(n) if n else 0"
    assert run_cases(sandbox, code, "f", [[3], [0], ["x" * (5 << 20)]]) == [
        NoResult(reason="its process ended with status 3", lost=True),
        Value(value=None),
        NoResult(reason="the input is larger than 4 MB"),
    ]
