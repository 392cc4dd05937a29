"""kill -9 at a few moments of an iteration; `make chaos` has many more."""

import pytest

from tests.chaos.kills import Victim
from tests.conftest import MakeConfig


@pytest.mark.timeout(900)
def test_killed_iterations_end_like_one_that_was_not_disturbed(make_config: MakeConfig) -> None:
    """Within a write early and later, while it is training, before the ledger's commit; by Ctrl-C twice; by SIGTERM."""
    victim = Victim.of(make_config())
    ended = victim.straight.ended
    moments = [
        f"write:{ended['writes'] // 3}",
        f"write:{ended['writes'] * 2 // 3}",
        "report:train",
        "decision:2",
        "signals:verify:2,2",
        "signals:train:15",
        "signals:verify:15,15",
    ]
    for moment in moments:
        assert victim.assert_survives(moment).startswith("survived"), moment
