"""When iterations one after another come to an end."""

import os
import signal
from collections.abc import Sequence
from typing import cast

import pytest

from rlm_core import progress
from rlm_core.errors import Interrupted
from rlm_core.records import Outcome
from rlm_core.series import Series, SeriesLimits


def after(outcomes: Sequence[str], limits: SeriesLimits, seconds: float = 60.0) -> Series:
    series = Series(limits)
    for outcome in outcomes:
        series.add(cast(Outcome, outcome), seconds)
    return series


def test_without_limits_it_never_ends() -> None:
    assert after(["rejected"] * 1_000, SeriesLimits()).over() is None


def test_so_many_iterations_are_run_and_no_more() -> None:
    assert after(["accepted"], SeriesLimits(iterations=2)).over() is None
    assert after(["accepted", "rejected"], SeriesLimits(iterations=2)).over() == "all 2 iterations are done"


@pytest.mark.parametrize(
    ("outcomes", "ends"),
    [
        (["rejected"], False),
        (["rejected", "rejected"], True),
        (["accepted", "rejected", "rejected"], True),
        (["rejected", "accepted", "rejected"], False),
        (["rejected", "probation", "rejected"], False),
    ],
)
def test_only_rejections_in_a_row_at_the_end_are_a_stall(outcomes: list[str], ends: bool) -> None:
    reason = after(outcomes, SeriesLimits(stalled_after=2)).over()
    assert reason == ("stalled: 2 candidates in a row were rejected" if ends else None)


def test_no_iteration_is_begun_that_would_end_too_late() -> None:
    assert after([], SeriesLimits(hours=0.001)).over() is None, "the first one is always begun"
    assert after(["accepted"], SeriesLimits(hours=1), seconds=3_500).over() is None
    assert after(["accepted"], SeriesLimits(hours=1), seconds=3_500).over(pause_s=200) is not None
    reason = after(["accepted"], SeriesLimits(hours=1), seconds=3_700).over()
    assert reason == "60 minutes are left of 1 hours, and an iteration takes 62"


def test_a_stop_ends_a_pause() -> None:
    with progress.stopped(), pytest.raises(Interrupted):
        progress.pause(1_000)


def test_a_stop_that_came_between_two_iterations_is_kept_by_the_next() -> None:
    with progress.stopping_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with progress.stopping_on_signals(), pytest.raises(Interrupted):
            progress.report("generate", 0, 1)
    with progress.stopping_on_signals():
        progress.report("generate", 0, 1)
