"""What has to be seen to before the first answer to a problem is judged."""

from collections.abc import Iterable

from rlm_core.problems import Problem
from rlm_core.verifiers.judgement import Bench


def prepare(problems: Iterable[Problem], bench: Bench) -> list[Problem]:
    """The problems, ready to be judged."""
    assert bench is not None
    return list(problems)
