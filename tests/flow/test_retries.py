"""Work that is tried again waits longer each time, and by lot, so that what failed together does not come together."""

from types import SimpleNamespace
from typing import Any

import pytest

from rlm_core.config import PrefectSection
from tasks.stage import placed, unplaced
from tasks.train import train

SECTION = PrefectSection.parse({"retries": 4, "retry_delay_s": 3.0})


@pytest.mark.parametrize("inside", [True, False], ids=["in an iteration", "outside"])
def test_each_wait_is_twice_the_one_before_by_lot_up_to_half_longer_or_shorter(inside: bool) -> None:
    iteration: Any = SimpleNamespace(directory="runs/0001")
    stage = placed(train, iteration, SECTION) if inside else unplaced(train, SECTION)
    assert stage.retries == 4
    assert stage.retry_delay_seconds == [3, 6, 12, 24]
    assert stage.retry_jitter_factor == 0.5
