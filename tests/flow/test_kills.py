"""kill -9 at a few moments of an iteration; `make chaos` has many more."""

import pytest

from rlm_core.state.project import Project
from tests.chaos.kills import assert_survives, left_over, outcome, run_iteration
from tests.conftest import MakeConfig


@pytest.mark.timeout(600)
def test_killed_iterations_end_like_one_that_was_not_disturbed(make_config: MakeConfig) -> None:
    """Within a write early and later, and while it is training; by Ctrl-C twice."""
    config = make_config()
    project = Project(config.with_name("project"))
    straight = run_iteration(config)
    ended = straight.ended
    assert left_over(config) == []
    expected = outcome(project)
    moments = [
        f"write:{ended['writes'] // 3}",
        f"write:{ended['writes'] * 2 // 3}",
        "report:train",
        "signals:verify:2,2",
    ]
    for moment in moments:
        assert assert_survives(config, moment, expected).startswith("survived"), moment
