"""A child that runs pytest tests, which reach the code that they test through proxies.

    request {"do": "run", "tests": source, "done": [id, …],      one or more of:
             "allowed": [question, …] or null}
        ["collected", [id, …]]                                   the tests that there are
        ["begin", id]
        ["end", id, [[phase, outcome], …], text, output, blocked]   setup, call, teardown; why it did not pass; what
                                                                 the code printed, and tried that it may not
        ["lost", "crashed" | "garbage"]                          the code under test is gone; this process ends, too
        ["done", text, [question, …]]                            text says why tests could not be collected; what
                                                                 was asked of the code's objects

Tests in `done` are collected, and not run. What is `allowed` was asked of the reference's objects (proxy.py). There are
no files: the test module is made from its source in memory. The parent, not this process, decides what these messages
come to.
"""

import ast
import contextlib
import io
import linecache
import os
import symtable
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.assertion.rewrite import rewrite_asserts
from _pytest.config import _prepareconfig

from . import wire
from .proxy import CandidateLink, Main, Proxy
from .words import words

MODULE = "test_main"
_FILE = f"/{MODULE}.py"
_UNUSED_PLUGINS = words("""
    cacheprovider doctest faulthandler junitxml legacypath logging pastebin setuponly setupplan stepwise
    terminal threadexception tmpdir unraisableexception warnings
""")
_ARGUMENTS = words("--rootdir=/ -c /dev/null --noconftest --capture=no --assert=plain --strict-markers")
_ARGUMENTS += tuple(f"-pno:{name}" for name in _UNUSED_PLUGINS)


class TestModule(pytest.Module):
    """The test module, made from source."""

    source = ""
    link: CandidateLink | None = None

    def _getobj(self) -> types.ModuleType:
        module = types.ModuleType(MODULE)
        module.__file__ = _FILE
        sys.modules[MODULE] = module
        if self.link is not None:
            self.link.taken_names = _names(self.source)
        tree = ast.parse(self.source)
        rewrite_asserts(tree, self.source.encode(), _FILE, self.config)
        exec(compile(tree, _FILE, "exec", dont_inherit=True), module.__dict__)
        return module


def _names(source: str) -> frozenset[str]:
    """The names that a module's own statements define."""
    symbols = symtable.symtable(source, _FILE, "exec").get_symbols()
    return frozenset(symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported())


class Reporter:
    """The plugin that collects the tests, and says what becomes of each."""

    def __init__(
        self, descriptor: int, tests: str, done: Sequence[str], link: CandidateLink | None, text_chars: int
    ) -> None:
        self._descriptor = descriptor
        self._tests = tests
        self._done = frozenset(done)
        self._link = link
        self._text_chars = text_chars
        self._phases: list[tuple[str, str]] = []
        self._text = ""
        self._not_collected = ""

    def say(self, *message: Any) -> None:
        """Send a message to the parent."""
        if self._descriptor >= 0:
            wire.send(self._descriptor, wire.frame(message))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the one module that there is, instead of looking for files."""
        module: TestModule = TestModule.from_parent(session, path=Path(_FILE), nodeid=MODULE)
        module.source, module.link = self._tests, self._link
        items = [item for item in session.genitems(module) if isinstance(item, pytest.Item)]
        self.say("collected", [_id(item.nodeid) for item in items])
        session.items = [item for item in items if _id(item.nodeid) not in self._done]
        session.testscollected = len(session.items)
        session.config.hook.pytest_collection_finish(session=session)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember why the module could not be collected."""
        if report.failed:
            self._not_collected = _last_line(str(report.longrepr), self._text_chars)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._phases, self._text = [], ""
        if self._link is not None:
            self._link.failures.clear()
        self.say("begin", _id(nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """What must fail the test does, even if it was let through."""
        yield
        if self._link is not None and self._link.failures:
            raise self._link.failures[0]

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over, or a part of one."""
        if isinstance(report, pytest.SubtestReport) and report.passed:
            return
        outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
        self._phases.append((report.when, outcome))
        if outcome != "passed" and not self._text:
            why = _why(report)[: self._text_chars]
            self._text = why if outcome == "failed" else f"{outcome}: {why}".removesuffix(": ")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test is over."""
        notes = self._link.take_notes() if self._link is not None else ("", [])
        self.say("end", _id(nodeid), self._phases, self._text, *notes)

    def finish(self) -> None:
        """Say that all tests are over."""
        asked = self._link.asked if self._link is not None else ()
        self.say("done", self._not_collected, sorted(asked))

    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        """An object of the code under test does not name a test: not every right answer calls its own the same."""
        return argname if isinstance(val, Proxy) else None


def _id(nodeid: str) -> str:
    return nodeid.partition("::")[2]


def _why(report: pytest.TestReport) -> str:
    """Why a phase did not pass, on one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    if isinstance(report.longrepr, tuple):  # of a skip: file, line, reason
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr or "")


def _last_line(text: str, limit: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip()[:limit] if lines else ""


def warm_up() -> None:
    """Run a few tests, so that what pytest imports and prepares on the way need not be by every child."""
    source = """
import pytest
@pytest.mark.parametrize("x", [1, 2])
def test_a(x): assert x == pytest.approx(1)
class TestB:
    @pytest.fixture
    def f(self): return [1]
    def test_b(self, f, capsys, monkeypatch):
        with pytest.raises(ValueError, match="no"): raise ValueError("no")
        assert f == [2]
"""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    linecache.cache[_FILE] = (0, None, [], _FILE)  # there is no such file to look for
    _run(_start_session(), Reporter(-1, source, (), None, 100))
    sys.modules.pop(MODULE, None)


def _start_session() -> pytest.Session:
    """What `pytest.main` does before it collects: the larger part of its time, and the same for all tests."""
    config = _prepareconfig(list(_ARGUMENTS))
    config._do_configure()
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)
    return session


def _run(session: pytest.Session, reporter: Reporter) -> None:
    """Collect and run, as `pytest.main` does."""
    hook = session.config.hook
    session.config.pluginmanager.register(reporter)
    with contextlib.suppress(BaseException):  # a session that was stopped is told by the tests that were not run
        hook.pytest_collection(session=session)
        hook.pytest_runtestloop(session=session)
    reporter.finish()


def prepare() -> None:
    """Warm up, and start the session that every child continues."""
    global _session
    warm_up()
    _session = _start_session()


_session: pytest.Session


class TestChild:
    """The loop of one child."""

    def __init__(self, descriptor: int, candidate: int, rules: dict[str, Any]) -> None:
        self._descriptor = descriptor
        self._candidate = candidate
        self._limits = rules["limits"]

    def serve(self) -> NoReturn:
        """Run the tests that the parent asks for, and end."""
        request = wire.receive(self._descriptor)
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(""), io.StringIO(), io.StringIO()
        link = CandidateLink(self._candidate, self._limits, self._lose, request["allowed"])
        sys.modules["main"] = Main("main", link)
        reporter = Reporter(self._descriptor, request["tests"], request["done"], link, self._limits["text_chars"])
        _run(_session, reporter)
        os._exit(0)

    def _lose(self, how: str) -> NoReturn:
        """Tell the parent at once and end: a test that caught an exception would take this for one of the answer's."""
        wire.send(self._descriptor, wire.frame(["lost", how]))
        os._exit(0)
