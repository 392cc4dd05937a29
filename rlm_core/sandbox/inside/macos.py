"""On macOS, the order in which a child gives up what it could do.

It begins to watch the zygote before the profile, which may not let it, and the thread that waits for the zygote's end
starts after, so that it is under the profile from its first moment.
"""

import os
from typing import Any

from . import rlimits, seatbelt, watch
from .errors import LockdownError


class MacLockdown:
    """Seatbelt and resource limits; the user stays the same, and the memory is the parent's to watch."""

    descriptor: int | None = None
    """Nothing has to stay open."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self._rules = rules
        self._profile = seatbelt.compile_profile(rules)

    def apply(self, _descriptor: int, parent: int) -> None:
        """Lock this process down for good; see `LinuxLockdown`.

        Raises:
            LockdownError: a restriction could not be applied.
        """
        os.umask(0o077)
        os.chdir("/")
        zygote = watch.Exit(parent)
        if os.getppid() != parent:
            raise LockdownError("the parent process is gone")
        rlimits.limit_resources(self._rules["limits"])
        seatbelt.restrict(self._profile)
        zygote.end_this_process_too()
