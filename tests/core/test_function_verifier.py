"""The user's own functions: what they may return, and that a broken one stops the work."""

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.problems import Problem
from rlm_core.verifiers import Answer, Bench, Judgement, judge
from rlm_core.verifiers.function import check, find, sources

NAME = "my_checks:f"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judgement]:
    """Judges "text" by the function given, named as the user would."""

    def judged(function: Any, pass_at: float = 1.0, listed: tuple[str, ...] = (NAME,), **arguments: Any) -> Judgement:
        module = types.ModuleType("my_checks")
        module.f = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "my_checks", module)
        verifier = {"kind": "function", "function": NAME, "arguments": arguments, "pass_at": pass_at}
        problem = Problem.model_validate({"prompt": "p", "verifier": verifier})
        return judge(Answer.of("text"), problem, Bench(functions=frozenset(listed)))

    return judged


@pytest.mark.parametrize(
    ("returned", "pass_at", "status", "score", "reason"),
    [
        (True, 1.0, "passed", 1.0, ""),
        (False, 1.0, "failed", 0.0, "its score is 0.000"),
        (1, 1.0, "passed", 1.0, ""),
        (0.75, 1.0, "failed", 0.75, "its score is 0.750"),
        (0.75, 0.75, "passed", 1.0, ""),
        (0.74, 0.75, "failed", 0.74, "its score is 0.740"),
        ((False, "too long"), 1.0, "failed", 0.0, "too long"),
        ((0.5, "too\nlong"), 1.0, "failed", 0.5, r"too\nlong"),
        ((True, "well done"), 1.0, "passed", 1.0, ""),
    ],
)
def test_what_a_function_returns_decides(
    calls: Callable[..., Judgement], returned: Any, pass_at: float, status: str, score: float, reason: str
) -> None:
    result = calls(lambda _text: returned, pass_at)
    assert (result.status, result.score, result.reason) == (status, score, reason)


def test_a_function_is_given_the_text_and_the_arguments(calls: Callable[..., Judgement]) -> None:
    seen: list[Any] = []

    def f(text: str, *, at_most: int, words: list[str]) -> bool:
        seen.append((text, at_most, words))
        return True

    assert calls(f, at_most=3, words=["a"]).status == "passed"
    assert seen == [("text", 3, ["a"])]


@pytest.mark.parametrize("returned", [1.1, -0.1, float("nan"), float("inf"), 2, (1.5, "x")])
def test_a_score_out_of_range_is_the_functions_fault(calls: Callable[..., Judgement], returned: Any) -> None:
    with pytest.raises(ProblemError, match=r"the verifier my_checks:f returned .*; a score must be from 0 to 1"):
        calls(lambda _text: returned)


@pytest.mark.parametrize("returned", [None, "yes", [1.0], (), (1.0,), (1.0, 2), ("x", 1.0), 1j, {"score": 1}])
def test_a_result_of_another_type_is_the_functions_fault(calls: Callable[..., Judgement], returned: Any) -> None:
    with pytest.raises(ProblemError, match=r"the verifier my_checks:f returned .*; it must return True, False"):
        calls(lambda _text: returned)


@pytest.mark.parametrize("error", [ValueError("no\nway"), SystemExit(0), RecursionError(), AssertionError()])
def test_a_function_that_raises_is_never_a_verdict(calls: Callable[..., Judgement], error: BaseException) -> None:
    def f(_text: str) -> bool:
        raise error

    with pytest.raises(ProblemError) as caught:
        calls(f)
    assert str(caught.value).startswith(f"the verifier my_checks:f raised {type(error).__name__}")
    assert "\n" not in str(caught.value)


def test_a_function_can_say_that_it_could_not_judge(calls: Callable[..., Judgement]) -> None:
    def f(_text: str) -> bool:
        raise InfrastructureFault("the judge's server does not answer")

    with pytest.raises(InfrastructureFault, match="server does not answer"):
        calls(f)


def test_only_functions_that_the_config_lists_are_called(calls: Callable[..., Judgement]) -> None:
    called: list[str] = []
    with pytest.raises(ProblemError, match=r"my_checks:f is not listed in verify\.functions"):
        calls(called.append, listed=("my_checks:g", "my_checks"))
    assert called == []


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def test_a_module_is_found_in_the_working_directory_and_hides_no_installed_one(directory: Path) -> None:
    (directory / "nearby.py").write_text("def f(text): return True\n")
    (directory / "colorsys.py").write_text("def f(text): return True\n")
    assert find("nearby:f", ["nearby:f"])("") is True
    with pytest.raises(ProblemError, match="colorsys:f cannot be imported: AttributeError"):
        find("colorsys:f", ["colorsys:f"])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "cannot be imported: ModuleNotFoundError"),
        ("def g(text): ...", "cannot be imported: AttributeError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit", "cannot be imported: SystemExit"),
        ("def f(", "cannot be imported: SyntaxError"),
        ("f = 3", "is no function but a int"),
        ("def f(text): ...", "cannot be called with its arguments: got an unexpected keyword argument 'n'"),
        ("def f(text, m, n): ...", "cannot be called with its arguments: missing a required argument: 'm'"),
        ("def f(): ...", "cannot be called with its arguments: too many positional arguments"),
    ],
)
def test_what_is_wrong_with_a_function_is_found_without_calling_it(
    directory: Path, source: str | None, reason: str
) -> None:
    if source is not None:
        (directory / "broken.py").write_text(source + "\n")
    verifier: Any = Problem.model_validate(
        {"prompt": "p", "verifier": {"kind": "function", "function": "broken:f", "arguments": {"n": 1}}}
    ).verifier
    with pytest.raises(ProblemError) as caught:
        check(verifier, ["broken:f"])
    assert str(caught.value).startswith(f"the verifier broken:f {reason}")


def test_a_function_has_the_digest_of_its_file(directory: Path) -> None:
    (directory / "first.py").write_text("def f(text): return True\n")
    (directory / "second.py").write_text("def f(text): return False\n")
    before = sources(["first:f", "second:f"])
    assert before["first:f"] != before["second:f"]
    (directory / "first.py").write_text("def f(text): return False\n")
    assert sources(["first:f"]) == {"first:f": before["second:f"]}
    assert sources([]) == {}
