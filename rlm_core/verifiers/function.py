"""The user's own functions as verifiers: trusted, outside of any sandbox, and only those that the config lists.

    def f(text, **arguments) -> bool | float | tuple[bool | float, str]

True, or a score of `pass_at` and more, passes; the text beside a score is the reason for people. A function that raises
or returns something else is broken, and stops the work: it must not become a reward, nor the lack of one.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from rlm_core.errors import InfrastructureFault, ProblemError
from rlm_core.files import sha256_of
from rlm_core.problems import Function, Problem
from rlm_core.sandbox.text import readable
from rlm_core.verifiers.judgement import Answer, Bench, Judgement


def judge(verifier: Function, answer: Answer, _problem: Problem, bench: Bench) -> Judgement:
    """Call the function with the answer's text.

    Raises:
        ProblemError: it is not listed, cannot be imported, raised, or returned what is no score.
        InfrastructureFault: raised by the function itself, which could not reach something that it needs.
    """
    call = find(verifier.function, bench.functions)
    try:
        returned = call(answer.text, **verifier.arguments)
    except InfrastructureFault:
        raise
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"the verifier {verifier.function} raised {readable(f'{type(error).__name__}: {error}')}"
        ) from error
    score, reason = _score_and_reason(verifier.function, returned)
    return Judgement.graded(score, verifier.pass_at, reason or f"its score is {score:.3f}")


def check(verifier: Function, functions: Collection[str]) -> None:
    """See that the function can be called at all, without calling it.

    Raises:
        ProblemError: it is not listed, cannot be imported, is none or does not take the arguments.
    """
    call = find(verifier.function, functions)
    try:
        inspect.signature(call).bind("", **verifier.arguments)
    except TypeError as error:
        raise ProblemError(f"the verifier {verifier.function} cannot be called with its arguments: {error}") from error
    except ValueError:
        return  # one written in C, which does not say what it takes


def find(name: str, functions: Collection[str]) -> Callable[..., Any]:
    """The function of this name, `package.module:name`. Modules are also looked for in the working directory.

    Raises:
        ProblemError: it is not listed, or there is no such function.
    """
    if name not in functions:
        raise ProblemError(f"the verifier {name} is not listed in verify.functions of the config")
    module, _, attribute = name.partition(":")
    try:
        found = getattr(_import(module), attribute)
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"the verifier {name} cannot be imported: {readable(f'{type(error).__name__}: {error}')}"
        ) from error
    if not callable(found):
        raise ProblemError(f"the verifier {name} is no function but a {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def sources(functions: Iterable[str]) -> dict[str, str]:
    """Digest of the file that each function is in: what was judged by another version of it is not taken for granted.

    Raises:
        ProblemError: one of them cannot be imported.
    """
    found = {}
    for name in functions:
        find(name, [name])
        file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
        found[name] = sha256_of(Path(file)) if file else ""
    return found


def _import(module: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file there takes the place of an installed module
    return importlib.import_module(module)


def _score_and_reason(name: str, returned: Any) -> tuple[float, str]:
    match returned:
        case (bool() | int() | float() as score, str(reason)):
            pass
        case bool() | int() | float() as score:
            reason = ""
        case _:
            raise ProblemError(
                f"the verifier {name} returned {readable(repr(returned))}; it must return True, False, a score from 0 "
                "to 1, or one of these and a reason"
            )
    if not 0 <= score <= 1:
        raise ProblemError(f"the verifier {name} returned {score!r}; a score must be from 0 to 1")
    return float(score), readable(reason)
