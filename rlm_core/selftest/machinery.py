"""The processes of a sandbox as the self-test sees them from outside, between two answers."""

import os
from pathlib import Path

from rlm_core.errors import InfrastructureFault
from rlm_core.sandbox import Sandbox
from rlm_core.sandbox.sandbox import Zygotes
from rlm_core.sandbox.zygote import Role

PROC = Path("/proc")


class Machinery:
    """Notices a zygote that was replaced, and processes that are left."""

    def __init__(self, sandbox: Sandbox, roles: tuple[Role, ...]) -> None:
        self._sandbox = sandbox
        self._roles = roles
        self._zygotes = self._living_zygotes()
        self._processes = self._running()

    def changes(self) -> list[str]:
        """What is different since the last look."""
        zygotes, processes = self._zygotes, self._processes
        try:
            self._zygotes = self._living_zygotes()
        except InfrastructureFault as fault:
            return [str(fault)]
        self._processes = self._running()
        if self._zygotes != zygotes:
            return ["it brought down the zygote"]
        left = self._processes - processes
        return [f"{len(left)} of its processes are left"] if left else []

    def _living_zygotes(self) -> list[int]:
        """The zygotes' process ids. One that is dead or does not answer is replaced by this."""

        def look(zygotes: Zygotes) -> list[int]:
            for role in self._roles:
                zygotes[role].end(zygotes[role].fork())
            return [zygotes[role].pid for role in self._roles]

        return self._sandbox.run(look)

    def _running(self) -> set[int]:
        """Processes in the zygotes' sessions, zombies aside; empty where processes cannot be listed."""
        if not can_list_processes():
            return set()
        every = (int(path.name) for path in PROC.iterdir() if path.name.isdigit())
        return {process for process in every if _runs_in(process, self._zygotes)}


def can_list_processes() -> bool:
    """Whether this platform shows its processes as files."""
    return (PROC / "self" / "stat").exists()


def _runs_in(process: int, sessions: list[int]) -> bool:
    try:
        return os.getsid(process) in sessions and ") Z " not in (PROC / str(process) / "stat").read_text()
    except OSError:
        return False
