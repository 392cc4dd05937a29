"""The order in which a child gives up what it could do. Any step that fails raises, and the child must end.

The order matters. The user changes before PR_SET_PDEATHSIG, because the kernel clears that on a change. Landlock comes
before seccomp, because the filter does not allow Landlock's own calls. For macOS see macos.py.
"""

import os
import signal
import sys
from typing import Any

from . import kernel, landlock, rlimits, seccomp
from .macos import MacLockdown


class LinuxLockdown:
    """Landlock, seccomp, resource limits and, where there is one to give, another user."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self._rules = rules
        seccomp.prepare()
        self.descriptor: int | None = landlock.create_ruleset(rules["listable"], rules["readable"], rules["devices"])
        """What has to stay open in a child until it is locked down: the ruleset."""

    def apply(self, descriptor: int, parent: int) -> None:
        """Lock this process down for good.

        Args:
            descriptor: what became of the object's own one in this process.
            parent: process id of the zygote, with which this process ends.

        Raises:
            LockdownError: a restriction could not be applied.
        """
        _lock_down(self._rules, descriptor, parent)


def prepare(rules: dict[str, Any]) -> LinuxLockdown | MacLockdown:
    """What a zygote can do once for all its children.

    Args:
        rules: `listable`, `readable`, `devices`: paths, see `landlock.create_ruleset`; `user` (id to become, or None to
            stay the same) and `keep_read_access`; `limits`: see `Limits`.

    Raises:
        LockdownError: this kernel cannot hold a child.
    """
    return MacLockdown(rules) if sys.platform == "darwin" else LinuxLockdown(rules)


def _lock_down(rules: dict[str, Any], ruleset: int, parent: int) -> None:
    os.umask(0o077)
    os.chdir("/")
    if rules["user"] is not None:
        kernel.become_user(rules["user"], rules["keep_read_access"])
    else:
        kernel.keep_capabilities(0)
    kernel.not_dumpable()
    kernel.die_with_parent(parent, signal.SIGKILL)
    rlimits.limit_resources(rules["limits"])
    landlock.restrict(ruleset)
    seccomp.restrict()
