"""How many problems the primitives give, told apart by what they do."""

import json
from collections import Counter

from rlm_core.sandbox import open_sandbox
from rlm_core.sources.procedural import problems


def test_thousands_of_problems_behave_differently() -> None:
    with open_sandbox() as sandbox:
        made = problems(2_000, 1, 1, {1: 1.0, 2: 2.0, 3: 2.0}, sandbox)
    assert Counter(problem.difficulty for problem in made) == {"1": 400, "2": 800, "3": 800}
    assert len({json.dumps([case.model_dump() for case in problem.cases]) for problem in made}) == 2_000
