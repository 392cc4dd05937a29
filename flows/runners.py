"""Where shards are verified: in this process, or in the processes of a Dask or Ray cluster.

A cluster of the flow's own lives for the time of the fan-out. It has as many processes as there are to be sandboxes,
listens on this machine, and serves nobody else: Dask's speaks TLS with a certificate made for it, Ray's wants a token.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.utilities.callables import get_call_parameters

from rlm_core.config import Config, PrefectSection, VerifySection
from rlm_core.errors import InfrastructureFault, one_line

_IGNORE_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""Run by Dask's workers, which Ctrl-C in a terminal reaches too. It is for the flow to end them."""


@dataclass(frozen=True)
class VerifyRunner:
    """A task runner for the verify tasks, and what is particular about it."""

    runner: TaskRunner[Any]
    section: VerifySection
    """What its tasks are to be given: in a process of a cluster, one sandbox works."""
    elsewhere: bool = False
    """Its tasks are in other processes: their progress reports are not heard here, nor do they hear of a stop."""
    own: bool = True
    """Its tasks end when it does."""
    lost: tuple[type[Exception], ...] = ()
    """What the future of a task raises that was lost with its process."""

    def submit(self, task: Any, **parameters: Any) -> PrefectFuture[Any]:
        return self.runner.submit(task, get_call_parameters(task.fn, (), parameters))

    def result(self, future: PrefectFuture[Any]) -> Any:
        """What a task returned.

        Raises:
            InfrastructureFault: it was lost with its process, more often than tries are allowed.
        """
        try:
            return future.result()
        except self.lost as error:
            raise InfrastructureFault(
                f"verify: a shard was lost with its worker: {one_line(error) or type(error).__name__}"
            ) from error


@contextmanager
def verify_runner(config: Config) -> Iterator[VerifyRunner]:
    """The configured runner, at work for the time of the block.

    Raises:
        InfrastructureFault: the cluster did not start, or is not there.
    """
    kind = config.prefect.verify_runner
    make = {"threads": _threads, "dask": _dask, "ray": _ray}[kind]
    with ExitStack() as opened:
        made = make(config.prefect, config.verify, opened)
        try:
            with _signal_handlers_kept():
                opened.enter_context(made.runner)
                getattr(made.runner, "client", None)  # Dask's cluster starts when it is first asked for
        except Exception as error:
            place = config.prefect.cluster or "on this machine"
            raise InfrastructureFault(
                f"no {kind} cluster {place}: {one_line(error) or type(error).__name__}"
            ) from error
        yield made


def _threads(_section: PrefectSection, verify: VerifySection, _opened: ExitStack) -> VerifyRunner:
    """One shard at a time: it has `workers` sandboxes of its own. Apart from the pool that the rollouts wait in."""
    return VerifyRunner(ThreadPoolTaskRunner(max_workers=1), verify)


def _dask(section: PrefectSection, verify: VerifySection, _opened: ExitStack) -> VerifyRunner:
    from distributed import CancelledError, KilledWorker
    from prefect_dask import DaskTaskRunner

    own = {
        "n_workers": verify.workers,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "security": True,
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": 0,
        "silence_logs": logging.CRITICAL,
        "scheduler_kwargs": {"allowed_failures": section.retries, "dashboard": False},
        "preload": [_IGNORE_CTRL_C],
    }
    runner = DaskTaskRunner(address=section.cluster) if section.cluster else DaskTaskRunner(cluster_kwargs=own)
    return _in_processes(runner, section, verify, (CancelledError, KilledWorker))


def _ray(section: PrefectSection, verify: VerifySection, opened: ExitStack) -> VerifyRunner:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from prefect_ray import RayTaskRunner
    from prefect_ray.context import remote_options
    from ray.exceptions import RayError

    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    own = {}
    if section.cluster is None:
        # Short, because sockets are in it; Ray itself leaves its logs behind.
        prefix = f"rlm-ray-{os.getpid()}-"
        scratch = opened.enter_context(TemporaryDirectory(prefix=prefix, dir="/tmp", ignore_cleanup_errors=True))
        own = {
            "address": "local",
            "num_cpus": verify.workers,
            "include_dashboard": False,
            "object_store_memory": 100 << 20,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": scratch,
        }
    opened.enter_context(remote_options(max_retries=section.retries))
    runner = RayTaskRunner(address=section.cluster, init_kwargs=quiet | own)
    return _in_processes(runner, section, verify, (RayError,))


def _in_processes(
    runner: TaskRunner[Any], section: PrefectSection, verify: VerifySection, lost: tuple[type[Exception], ...]
) -> VerifyRunner:
    one_sandbox = verify.model_copy(update={"workers": 1})
    return VerifyRunner(runner, one_sandbox, elsewhere=True, own=section.cluster is None, lost=lost)


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray puts a handler of its own in the place of the flow's when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
