"""The scorers of reasoning-gym's data sets, as far as they do not run an answer as code."""

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rlm_core.verifiers.scoring import BadVerifier, ScoreText, Worth, scored

PACKAGE = "reasoning_gym"
_EVALUATORS = {"eval", "exec", "compile", "__import__"}
_EVALUATING_LIBRARIES = {"sympy", "pickle", "marshal", "subprocess", "runpy", "code"}
"""What runs, or may run, code in a text that it is given: any of sympy's functions evaluates one."""
_TRUSTED = (f"{PACKAGE}.dataset", f"{PACKAGE}.factory", f"{PACKAGE}.coaching", f"{PACKAGE}.data")
"""Its own frame: the scorer that all data sets inherit compares texts."""


def by_dataset(name: str, entry: dict[str, Any], pass_at: float) -> ScoreText:
    """The score that a data set gives to the answer.

    Raises:
        BadVerifier: there is no such data set, its scorer would run the answer as code, or the entry is not one of it.
    """
    scorer = _scorer(name)

    def score_text(text: str) -> Worth:
        from reasoning_gym.utils import extract_answer

        score = float(scorer(extract_answer(text) or text.strip(), entry))
        if not 0 <= score <= 1:
            return scored(f"its scorer gave {score!r}")
        return scored("" if score >= pass_at else f"{name} scores it {score:.3f}, {pass_at:g} is needed", score)

    _try_own_answer(score_text, name, entry)
    return score_text


def _try_own_answer(score_text: ScoreText, name: str, entry: dict[str, Any]) -> None:
    """See that an entry's own answer passes: the entry may be another data set's, or have lost something on its way."""
    if missing := {"question", "answer", "metadata"} - entry.keys():
        raise BadVerifier(f"its entry has no {', '.join(sorted(missing))}")
    try:
        result = score_text(str(entry["answer"]))
    except Exception as error:
        raise BadVerifier(f"its entry is not one of {name}: scoring raised {type(error).__name__}: {error}") from error
    if isinstance(entry["answer"], str) and result["reason"]:
        raise BadVerifier(f"its entry's own answer does not pass: {result['reason']}")


@functools.cache
def _scorer(name: str) -> Callable[[str, dict[str, Any]], float]:
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise BadVerifier(
            f"reasoning-gym cannot be imported ({error}); install it with: pip install 'rlm-flows[reasoning-gym]'"
        ) from error
    if name not in DATASETS:
        raise BadVerifier(f"reasoning-gym has no data set {name!r}")
    kind, config = DATASETS[name]
    if why := _why_refused(kind):
        raise BadVerifier(f"the data set {name} is refused: {why}")
    score: Callable[[str, dict[str, Any]], float] = kind(config=config()).score_answer
    return score


def _why_refused(kind: type[Any]) -> str:
    """Why a data set's scorer is not let near a text that a model wrote, or "".

    Some of them hand the answer to `eval` or to sympy, which would run it as code. So one is refused when its module,
    or another of the package that it imports, names anything that can.
    """
    owner = next(base for base in kind.__mro__ if "score_answer" in vars(base))
    if owner.__module__ == f"{PACKAGE}.composite":
        return "name the data set that the entry comes from"
    pending, seen = [owner.__module__], set()
    while pending:
        module = pending.pop()
        if module in seen or not module.startswith(f"{PACKAGE}.") or module.startswith(_TRUSTED):
            continue
        seen.add(module)
        tree = ast.parse(inspect.getsource(sys.modules[module]))
        if danger := next(_dangers(tree), None):
            return f"its scorer may run an answer as code ({module} uses {danger})"
        pending += _imported(tree, module)
    return ""


def _dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _EVALUATORS:
            yield node.id
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.partition(".")[0] in _EVALUATING_LIBRARIES)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from [str(node.module)] if str(node.module).partition(".")[0] in _EVALUATING_LIBRARIES else []


def _imported(tree: ast.AST, module: str) -> Iterator[str]:
    """Modules of the package that a module imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module if hasattr(sys.modules[module], "__path__") else module.rpartition(".")[0]
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names = [base, *(f"{base}.{each.name}" for each in node.names)]
        yield from (name for name in names if name in sys.modules)
