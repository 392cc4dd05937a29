"""Work that is tried again waits longer each time, and by lot, so that what failed together does not come together.
Whatever is done again is said, with its cause, in the log of the flow run.
"""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow

from flows.live import progress_in_log
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


def test_what_the_core_warns_of_in_any_thread_is_in_the_log_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    core = logging.getLogger("rlm_core.judging")

    @flow
    def at_work() -> None:
        with progress_in_log():
            judging = threading.Thread(target=core.warning, args=("%d are judged again: %s", 2, "one\nreason"))
            judging.start()
            judging.join()
            core.info("of no interest")
        core.warning("outside")

    at_work()
    said = [record for record in caplog.records if record.name == "prefect.flow_runs"]
    assert [record.getMessage() for record in said if record.levelname == "WARNING"] == [
        "2 are judged again: one reason"
    ]
