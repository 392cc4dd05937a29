"""What a listener keeps of the stages, and when it says so."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlm_core.progress import Progress
from rlm_core.stage_progress import StageBook


def test_a_line_is_due_at_intervals_and_when_the_stage_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    book, due = StageBook(), []
    for second in range(1, 11):
        now[0] = 100.0 + second
        with book.add(Progress("train", second, 10)) as stage:
            if book.due(stage, 4.0):
                due.append(stage.done)
    assert due == [5, 9, 10]


def test_one_stages_line_does_not_put_off_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    book = StageBook()
    for now[0], expected in ((100.0, False), (104.0, True)):
        for name in ("rollout", "verify"):
            with book.add(Progress(name, 1, 10)) as stage:
                assert book.due(stage, 4.0) is expected


@pytest.mark.parametrize(("done", "left"), [(0, None), (1, None), (4, None), (5, 1900), (50, 100), (100, None)])
def test_how_long_it_will_take_is_said_when_enough_is_done_to_tell(
    monkeypatch: pytest.MonkeyPatch, done: int, left: int | None
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    with StageBook().add(Progress("verify", done, 100)) as stage:
        stage.started = 0.0
        assert ("left" in stage.line()) is (left is not None)
        if left is not None:
            assert stage.line().endswith(f"about {left} s left")


def test_parts_that_are_reported_by_several_threads_add_up() -> None:
    book = StageBook()

    def work(part: str) -> None:
        for done in range(200):
            with book.add(Progress("verify", done + 1, 200, part, {"passed": done // 2})) as stage:
                assert 0 <= stage.done <= stage.total

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, ["000", "001", "002", "003"]))
    with book.add(Progress("verify", 0, 200, "004")) as stage:
        assert (stage.done, stage.total, stage.figure("passed")) == (800, 1000, 4 * 99)
