"""`rlm verify --self-test`: whether a sandbox of this machine holds, answer by answer."""

import json
from collections.abc import Sequence

from rich.table import Table

from rlm_cli.terminal import plain_console
from rlm_core.config import VerifySection
from rlm_core.errors import InfrastructureFault, SandboxUnavailable
from rlm_core.sandbox import Container, open_sandbox
from rlm_core.selftest import LIMITS, MODES, Mode, SelfTest, self_test

HOLDS, DOES_NOT_HOLD, NOT_TRIED = 0, 1, 2


def try_sandbox(name: str, modes: Sequence[Mode] = MODES, container: Container | None = None) -> SelfTest:
    """Run the self-test in the sandbox of that name, or in that container.

    Raises:
        SandboxUnavailable, InfrastructureFault: it could not be tried.
    """
    return self_test(lambda: open_sandbox(name, LIMITS, container=container), modes)


def run_self_test(section: VerifySection, mode: Mode | None, as_json: bool) -> int:
    """Run the self-test and print what it found.

    Returns:
        0 when the sandbox holds, 1 when it does not, 2 when it could not be tried.
    """
    try:
        report = try_sandbox(section.sandbox, (mode,) if mode else MODES, section.container)
    except (InfrastructureFault, SandboxUnavailable) as fault:
        plain_console(stderr=True).print(f"rlm: could not be tried: {fault}", soft_wrap=True)
        return NOT_TRIED
    if as_json:
        print(json.dumps({"holds": report.holds, "verdict": report.verdict} | report.model_dump(mode="json")))
    else:
        _print(report)
    return HOLDS if report.holds else DOES_NOT_HOLD


def _print(report: SelfTest) -> None:
    console = plain_console()
    console.print(_table(report))
    for tried in report.tried:
        if not tried.held:
            console.print(f"✗ {tried.name}: {'; '.join(tried.why_not)}", soft_wrap=True)
    for what in report.not_looked_at:
        console.print(f"not tried here: {what}", soft_wrap=True)
    console.print(report.extent, soft_wrap=True)
    console.print(report.verdict, soft_wrap=True)


def _table(report: SelfTest) -> Table:
    """One line for each answer, however narrow the terminal."""
    table = Table("", "answer", "by", "must", box=None, pad_edge=False, expand=True)
    for heading in ("tries", "what came"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1)
    for tried in report.tried:
        table.add_row("✓" if tried.held else "✗", tried.name, tried.mode, tried.must, tried.tries, tried.came)
    return table
