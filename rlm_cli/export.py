"""`rlm export`: the accepted adapter as a model of its own."""

from pathlib import Path

from rlm_cli.terminal import plain_console
from rlm_cli.watch import Watcher
from rlm_core.config import Config
from rlm_core.export.run import export
from rlm_core.progress import listening, stopping_on_signals


def export_policy(config: Config, policy: str, target: Path, gguf: bool) -> None:
    """Fuse, examine and describe a policy with live progress, and say where it is.

    Raises:
        RlmError: as `export` does.
    """
    with Watcher() as watcher, listening(watcher), stopping_on_signals():
        exported = export(config, policy, target, gguf, watcher.say)
    adapted, fused = (report.pass_at[1] for report in exported.exams)
    console = plain_console()
    console.print(
        f"exam        {adapted:.3f} with the adapter, {fused:.3f} fused; log-probabilities differ by "
        f"{exported.difference:.1e} nats",
        soft_wrap=True,
    )
    console.print(f"exported    {target.absolute()}", soft_wrap=True)
