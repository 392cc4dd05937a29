"""The device has one user at a time, and the last policy stays loaded for the next one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from rlm_core import progress
from rlm_core.errors import InfrastructureFault, one_line
from rlm_core.model.loading import is_out_of_memory, load_policy
from rlm_core.model.policy import Policy
from rlm_core.records import AdapterRef

_device = threading.RLock()
"""One user of the device at a time: generation, scoring and training are not overlapped on one machine."""

_last: tuple[tuple[str, str | None], Policy] | None = None


@contextmanager
def device_policy(base: str, adapter: AdapterRef | None) -> Iterator[Policy]:
    """The device and a policy for the time of the block. The policy must not be changed; the last one is kept loaded.

    Raises:
        ModelError, AdapterError: as `load_policy`.
    """
    global _last
    with progress.in_turn(_device), _out_of_memory_is_a_fault():
        key = (base, adapter.sha256 if adapter else None)
        if _last is None or _last[0] != key:
            _last = None
            _last = (key, load_policy(base, adapter))
        yield _last[1]


@contextmanager
def device_policy_to_train(base: str, adapter: AdapterRef | None) -> Iterator[Policy]:
    """The device and a policy of its own that may be changed, for the time of the block."""
    global _last
    with progress.in_turn(_device), _out_of_memory_is_a_fault():
        _last = None
        yield load_policy(base, adapter)


@contextmanager
def _out_of_memory_is_a_fault() -> Iterator[None]:
    """Another program may have had the memory: what is kept loaded is let go, and another try may find enough.

    Raises:
        InfrastructureFault: in the place of the device's own complaint, with the settings that say how much is needed.
    """
    global _last
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _last = None
        mx.clear_cache()
        raise InfrastructureFault(
            f"the model ran out of memory ({one_line(error, 120) or 'no reason given'}); smaller rollout.batch_size "
            "and train.micro_batch need less at a time"
        ) from error
