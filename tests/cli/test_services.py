"""What `rlm up` keeps going: it is started again when it dies, later each time, and ended with the block."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_cli import services
from rlm_cli.services import Service, Services
from rlm_core.errors import InfrastructureFault


class Clock:
    """A monotonic clock that a test sets forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(services, "time", clock)
    return clock


def service(tmp_path: Path, script: str, works: Callable[[], bool] = lambda: True, patience_s: float = 60) -> Service:
    return Service("the thing", ["sh", "-c", script], tmp_path / "log", works, patience_s)


def test_what_dies_is_started_again_after_a_longer_pause_each_time(tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    running = Services({}, said.append)

    def die_and_look() -> None:
        while running.all_work():
            time.sleep(0.01)
        running.look_after()

    with running.running(service(tmp_path, "echo I am ill; exit 3")):
        for pause_s in (1, 2, 4):
            die_and_look()
            assert said.pop() == (
                f"the thing ended by itself with code 3 and is started again in {pause_s} s: "
                + " ".join(["I am ill"] * (tmp_path / "log").read_text().count("ill"))
            )
            running.look_after()
            assert said == [], "it is not said again, and not started yet"
            clock.ahead += pause_s
            running.look_after()
        clock.ahead += services._STEADY_S
        die_and_look()
        assert "is started again in 1 s" in said.pop(), "it had worked for long"
        assert (tmp_path / "log").read_text() == "I am ill\n" * 4


def test_what_ends_before_it_works_is_not_started_again(tmp_path: Path) -> None:
    running = Services({}, print)
    never = service(tmp_path, "echo no such file; exit 2", works=lambda: False)
    with (
        pytest.raises(InfrastructureFault, match=r"^the thing ended while starting: no such file$"),
        running.running(never),
    ):
        pytest.fail("it does not work")


def test_what_takes_too_long_to_work_is_ended(tmp_path: Path) -> None:
    running = Services({}, print)
    slow = service(
        tmp_path, "trap 'echo ended; exit' TERM; while :; do sleep 0.01; done", lambda: False, patience_s=0.5
    )
    with pytest.raises(InfrastructureFault, match=r"^the thing was not ready within 0\.5 s$"), running.running(slow):
        pytest.fail("it does not work")
    assert (tmp_path / "log").read_text() == "ended\n"
