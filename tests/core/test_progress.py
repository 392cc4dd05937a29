"""Reports reach the listeners, and are where requests to stop and time limits take effect."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlm_core import progress
from rlm_core.errors import InfrastructureFault, Interrupted
from rlm_core.progress import Progress, check, listening, report, stopping_on_signals, time_limit

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_stop() -> Iterator[None]:
    """No test leaves a request to stop behind."""
    yield
    progress._stop.clear()


# --------------------------------------------------------------------------------------------------------- listeners


def test_every_listener_hears_every_report_until_its_block_ends() -> None:
    first: list[Progress] = []
    second: list[Progress] = []
    report("train", 0, 9)
    with listening(first.append):
        report("train", 1, 9, "000", loss=0.5)
        with listening(second.append):
            report("train", 2, 9)
        report("verify", 3, 9)
    report("train", 4, 9)
    assert first == [
        Progress("train", 1, 9, "000", {"loss": 0.5}),
        Progress("train", 2, 9),
        Progress("verify", 3, 9),
    ]
    assert second == [Progress("train", 2, 9)]


def test_an_error_in_the_block_ends_the_listening() -> None:
    heard: list[Progress] = []
    with pytest.raises(KeyError), listening(heard.append):
        raise KeyError
    report("train", 1, 1)
    assert heard == []


def test_reports_of_other_threads_are_heard() -> None:
    heard: list[Progress] = []
    with listening(heard.append):
        thread = threading.Thread(target=report, args=("rollout", 1, 2))
        thread.start()
        thread.join()
    assert heard == [Progress("rollout", 1, 2)]


# -------------------------------------------------------------------------------------------------- stops and limits


def test_a_request_to_stop_ends_every_stage_at_its_next_report_before_anyone_hears_it() -> None:
    heard: list[Progress] = []
    progress._stop.set()
    with listening(heard.append), pytest.raises(Interrupted, match="the next run continues") as caught:
        report("train", 1, 2)
    assert caught.value.exit_code == 130
    assert heard == []


def test_a_block_stops_at_the_next_report_and_gives_the_signals_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    heard: list[Progress] = []
    with stopping_on_signals(), listening(heard.append):
        report("train", 1, 2)
        progress._stop.set()  # what the handler does; a real signal would start its watchdog in this process
        with pytest.raises(Interrupted):
            report("train", 2, 2)
    assert [event.done for event in heard] == [1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_new_block_forgets_the_request_of_an_earlier_one() -> None:
    with stopping_on_signals():
        progress._stop.set()
    with stopping_on_signals():
        report("train", 1, 2)


def test_outside_the_main_thread_the_block_changes_nothing() -> None:
    seen: list[object] = []

    def enter() -> None:
        with stopping_on_signals():
            seen.extend([signal.getsignal(signal.SIGINT), progress._stop.is_set()])

    with stopping_on_signals():
        handler = signal.getsignal(signal.SIGINT)
        progress._stop.set()
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert seen == [handler, True]


def test_a_time_limit_fails_the_next_report_after_it_has_passed() -> None:
    with time_limit(0.05):
        report("rollout", 1, 3)
        time.sleep(0.06)
        with pytest.raises(InfrastructureFault, match=r"^rollout: took longer than 0\.05 s$"):
            report("rollout", 2, 3)
    report("rollout", 3, 3)


def test_a_time_limit_is_its_threads_own() -> None:
    with time_limit(0.001):
        time.sleep(0.01)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                report("rollout", 1, 3)
            except InfrastructureFault as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert errors == []


def test_an_inner_time_limit_does_not_lift_the_outer_one() -> None:
    with time_limit(0.001):
        with time_limit(60):
            pass
        time.sleep(0.01)
        with pytest.raises(InfrastructureFault):
            report("rollout", 1, 3)


# ------------------------------------------------------------------------------------------------------ real signals

SCRIPT = """
import sys, time
from rlm_core import progress
from rlm_core.errors import Interrupted
progress._GRACE_S = float(sys.argv[2])

def reports():
    progress.report("train", 1, 2)

def does_not_notice():
    pass

try:
    with progress.stopping_on_signals():
        print("ready", flush=True)
        while True:
            {"reports": reports, "deaf": does_not_notice}[sys.argv[1]]()
            time.sleep(0.01)
except Interrupted as stop:
    print("kept what was finished", flush=True)
    time.sleep(float(sys.argv[3]))
    sys.exit(stop.exit_code)
"""


def start(work: str, grace_s: float = 20, tidy_s: float = 0) -> subprocess.Popen[str]:
    """A process that works in a `stopping_on_signals` block, once it is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, work, str(grace_s), str(tidy_s)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=10)
    return process.returncode, output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_stage_that_reports_in_good_order(number: signal.Signals) -> None:
    process = start("reports")
    process.send_signal(number)
    assert end_of(process) == (130, "kept what was finished\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals, status: int) -> None:
    process = start("deaf")
    process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    started = time.monotonic()
    process.send_signal(number)
    assert end_of(process) == (status, "")
    assert time.monotonic() - started < 5


def test_a_stage_that_does_not_notice_a_signal_is_ended_after_a_while() -> None:
    process = start("deaf", grace_s=0.2)
    process.send_signal(signal.SIGINT)
    assert end_of(process) == (130, "")


def test_a_stage_that_noticed_has_all_the_time_to_tidy_up() -> None:
    process = start("reports", grace_s=0.3, tidy_s=0.8)
    os.kill(process.pid, signal.SIGTERM)
    started = time.monotonic()
    assert end_of(process) == (130, "kept what was finished\n")
    assert time.monotonic() - started >= 0.8


def test_a_check_stops_a_stage_as_a_report_does_and_nobody_hears_it() -> None:
    heard: list[Progress] = []
    with listening(heard.append):
        check("train")
        with progress.stopped(), pytest.raises(Interrupted, match="the next run continues"):
            check("train")
        with time_limit(0.01):
            time.sleep(0.02)
            with pytest.raises(InfrastructureFault, match=r"^rollout: took longer than 0\.01 s$"):
                check("rollout")
    assert heard == []


def test_waiting_for_ones_turn_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    @contextmanager
    def busy_lock() -> Iterator[None]:
        now[0] += 60
        yield

    with progress.time_limit(10) as worked:
        now[0] += 4
        with progress.in_turn(busy_lock()):
            now[0] += 5
            progress.report("stage", 1, 2)
            assert worked() == 9
        now[0] += 2
        with pytest.raises(InfrastructureFault, match="10 s"):
            progress.report("stage", 2, 2)
    with progress.in_turn(busy_lock()):
        progress.report("stage", 2, 2)


def test_who_gets_a_turn_after_a_stop_was_asked_for_does_not_begin() -> None:
    lock = threading.Lock()
    with progress.stopped(), pytest.raises(Interrupted), progress.in_turn(lock):
        raise AssertionError("it began")
    assert lock.acquire(blocking=False)


def test_a_step_that_does_not_end_is_ended_and_that_is_said() -> None:
    program = """
import os, signal, time
from rlm_core import progress
progress._GRACE_S = 0.2
with progress.stopping_on_signals():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=25, check=False)
    assert ended.returncode == 130
    assert "took more than 0.2 s; the next run continues" in ended.stderr


def test_stages_stop_only_for_the_time_of_the_block() -> None:
    with progress.stopped(), pytest.raises(Interrupted):
        progress.report("stage", 1, 2)
    progress.report("stage", 2, 2)
